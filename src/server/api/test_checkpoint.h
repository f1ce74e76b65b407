// For tests of what is read beside the weights: a checkpoint of texts and metadata, without
// tensors.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint.h"

namespace headrace::test {

class TextCheckpoint : public Checkpoint {
 public:
  explicit TextCheckpoint(CheckpointKind kind) : kind_(kind) {}

  TextCheckpoint& file(const std::string& name, std::string text) {
    files_[name] = std::move(text);
    return *this;
  }
  TextCheckpoint& erase(const std::string& name) {
    files_.erase(name);
    return *this;
  }
  TextCheckpoint& at(std::string path) {
    path_ = std::move(path);
    return *this;
  }
  template <typename T>
  TextCheckpoint& key(std::string name, T value) {
    metadata_.insert(std::move(name), MetadataValue{value});
    return *this;
  }

  CheckpointKind kind() const override { return kind_; }
  const std::string& path() const override { return path_; }
  std::span<const std::string> names() const override { return {}; }
  const TensorView* find(std::string_view) const override { return nullptr; }
  size_t file_bytes() const override { return 0; }
  const Metadata& metadata() const override { return metadata_; }
  std::optional<std::string> sidecar(std::string_view name) const override {
    const auto found = files_.find(name);
    return found == files_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string fingerprint() const override { return ""; }
  void release_pages() const override {}

 private:
  CheckpointKind kind_;
  std::string path_ = "models/some-decoder";
  std::map<std::string, std::string, std::less<>> files_;
  Metadata metadata_;
};

}  // namespace headrace::test
