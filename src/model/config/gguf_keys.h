// GgufKeys: the metadata of a GGUF file under the prefix of its architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/metadata.h"

namespace headrace {

// The metadata outlives it. Keys are given without the prefix; a key without a fallback is needed
// (kNotFound), one of another type is kInvalidArgument.
class GgufKeys {
 public:
  GgufKeys(const Metadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return metadata_.has(name(key)); }
  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, double fallback) const {
    return metadata_.number(name(key)).value_or(fallback);
  }
  bool boolean(std::string_view key, bool fallback) const {
    return metadata_.boolean(name(key)).value_or(fallback);
  }
  // A scalar for all layers, or an array with one entry per layer.
  Result<std::vector<int64_t>> per_layer(std::string_view key, size_t num_layers,
                                         std::optional<int64_t> fallback = {}) const;

 private:
  const Metadata& metadata_;
  std::string prefix_;
};

}  // namespace headrace
