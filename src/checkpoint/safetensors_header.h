// The JSON header of a safetensors file, read without building a document.
//
// A document would keep only the last of duplicate keys; this reader sees each one. Limits: 98,304
// tensors and 4,096 __metadata__ keys per file, 8 dimensions, 16 MiB per string. Source: the
// safetensors format.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/tensor.h"

namespace headrace {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<uint64_t, TensorView::kMaxRank> shape{};
  std::array<uint64_t, 2> data_offsets{};  // begin, end; from the start of the data section
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in header order
  std::vector<std::pair<std::string, std::string>> metadata;
};

// kCorrupt names the tensor and field; kUnsupported an unknown dtype, rank or field.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::string_view name);

}  // namespace headrace
