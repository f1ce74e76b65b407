// A checkpoint made in memory: texts beside the weights, keys, and tensors of zeros. For tests
// only.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace headrace::testing {

class FakeCheckpoint : public Checkpoint {
 public:
  explicit FakeCheckpoint(CheckpointKind kind) : kind_(kind) {}
  // A safetensors checkpoint with this config.json.
  explicit FakeCheckpoint(std::string config) : kind_(CheckpointKind::kSafetensors) {
    sidecars_["config.json"] = std::move(config);
  }

  FakeCheckpoint& file(const std::string& name, std::string text) {
    sidecars_[name] = std::move(text);
    return *this;
  }
  // Replaces a tensor of this name.
  FakeCheckpoint& tensor(const std::string& name, const std::vector<int64_t>& shape,
                         DType dtype = DType::kF32) {
    remove(name);
    TensorView view;
    view.dtype = dtype;
    view.rank = static_cast<int>(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) view.shape[i] = shape[i];
    const DTypeRow& row = dtype_row(dtype);
    view.num_bytes =
        static_cast<size_t>(view.num_elements()) / row.block_elements * row.block_bytes;
    data_.emplace_back(view.num_bytes);
    view.data = data_.back().data();
    tensors_[name] = view;
    names_.push_back(name);
    return *this;
  }
  // The same with values, float32.
  FakeCheckpoint& tensor_of(const std::string& name, const std::vector<int64_t>& shape,
                            const std::vector<float>& values) {
    tensor(name, shape);
    CHECK(data_.back().size() == values.size() * sizeof(float), "{} values for {}", values.size(),
          name);
    std::memcpy(data_.back().data(), values.data(), data_.back().size());
    return *this;
  }
  FakeCheckpoint& remove(const std::string& name) {
    tensors_.erase(name);
    std::erase(names_, name);
    return *this;
  }
  template <typename T>
  FakeCheckpoint& key(std::string name, T value) {
    metadata_.insert(std::move(name), MetadataValue{value});
    return *this;
  }

  CheckpointKind kind() const override { return kind_; }
  const std::string& path() const override { return path_; }
  std::span<const std::string> names() const override { return names_; }
  const TensorView* find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  size_t file_bytes() const override { return 0; }
  const Metadata& metadata() const override { return metadata_; }
  std::optional<std::string> sidecar(std::string_view file_name) const override {
    const auto found = sidecars_.find(file_name);
    return found == sidecars_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string fingerprint() const override { return ""; }
  void release_pages() const override {}

 private:
  CheckpointKind kind_;
  std::string path_ = "fake";
  std::vector<std::string> names_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::vector<std::vector<std::byte>> data_;
  std::map<std::string, std::string, std::less<>> sidecars_;
  Metadata metadata_;
};

}  // namespace headrace::testing
