// The value types of GGUF keys, one row each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "checkpoint/metadata.h"

namespace headrace {

struct GgufValueType {
  std::string_view name;
  uint32_t num_bytes;  // of one element; 0 for strings and arrays, which have no fixed size
  MetadataValue (*read_scalar)(const std::byte* bytes);
  MetadataValue::Array (*read_array)(const std::byte* bytes, size_t count);
};

constexpr uint32_t kGgufTypeU32 = 4;
constexpr uint32_t kGgufTypeString = 8;
constexpr uint32_t kGgufTypeArray = 9;

// Null if there is no such type id.
const GgufValueType* find_gguf_value_type(uint32_t type_id);

}  // namespace headrace
