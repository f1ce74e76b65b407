// Builds adapter files in memory, valid or broken on purpose. For tests only.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <string>
#include <vector>

#include "model/adapter.h"

namespace headrace::testing {

class AdapterBuilder {
 public:
  AdapterBuilder& config(std::string text) {
    config_ = std::move(text);
    return *this;
  }
  // Float32, of these values in turn; "base_model.model." comes before the name.
  AdapterBuilder& tensor(const std::string& name, const std::vector<int64_t>& shape,
                         const std::vector<float>& values = {0.5f, -0.25f, 0.125f}) {
    return raw_tensor("base_model.model." + name, shape, "F32", values);
  }
  AdapterBuilder& raw_tensor(const std::string& name, const std::vector<int64_t>& shape,
                             std::string_view dtype, const std::vector<float>& values = {0.5f}) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const size_t begin = data_.size();
    for (int64_t i = 0; i < count; ++i) {
      const float value = values[static_cast<size_t>(i) % values.size()];
      data_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header_ += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                           header_.empty() ? "" : ",", name, dtype, fmt::join(shape, ","), begin,
                           data_.size());
    return *this;
  }
  // Both halves of a linear module.
  AdapterBuilder& linear(const std::string& module, int64_t outputs, int64_t inputs, int64_t rank) {
    return tensor(module + ".lora_A.weight", {rank, inputs})
        .tensor(module + ".lora_B.weight", {outputs, rank});
  }

  // Refers to the builder.
  AdapterFiles files() {
    const std::string header = "{" + header_ + "}";
    const uint64_t size = header.size();
    file_.assign(reinterpret_cast<const char*>(&size), sizeof size);
    file_ += header + data_;
    return {"test", config_, std::as_bytes(std::span(file_))};
  }

 private:
  std::string config_ = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})";
  std::string header_, data_, file_;
};

}  // namespace headrace::testing
