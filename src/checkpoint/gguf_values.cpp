#include "checkpoint/gguf_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace headrace {
namespace {

template <typename T>
T load(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
MetadataValue read_number(const std::byte* bytes) {
  const T value = load<T>(bytes, 0);
  if constexpr (std::is_floating_point_v<T>) return {static_cast<double>(value)};
  if constexpr (std::is_same_v<T, uint64_t>) return {value};
  return {static_cast<int64_t>(value)};
}

template <typename To, typename T>
std::vector<To> read_elements(const std::byte* bytes, size_t count) {
  std::vector<To> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<To>(load<T>(bytes, i));
  return values;
}

template <typename T>
MetadataValue::Array read_numbers(const std::byte* bytes, size_t count) {
  if constexpr (std::is_floating_point_v<T>) return read_elements<double, T>(bytes, count);
  if constexpr (std::is_same_v<T, uint64_t>) {
    // Values that no int64 holds turn the array into doubles, which integers() then refuses.
    for (size_t i = 0; i < count; ++i) {
      if (load<T>(bytes, i) > uint64_t{INT64_MAX}) return read_elements<double, T>(bytes, count);
    }
  }
  return read_elements<int64_t, T>(bytes, count);
}

MetadataValue read_bool(const std::byte* bytes) { return {bytes[0] != std::byte{0}}; }

MetadataValue::Array read_bools(const std::byte* bytes, size_t count) {
  std::vector<bool> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = bytes[i] != std::byte{0};
  return values;
}

template <typename T>
constexpr GgufValueType number_type(std::string_view name) {
  return {name, sizeof(T), read_number<T>, read_numbers<T>};
}

constexpr std::array<GgufValueType, 13> kTypes = {{
    number_type<uint8_t>("u8"),
    number_type<int8_t>("i8"),
    number_type<uint16_t>("u16"),
    number_type<int16_t>("i16"),
    number_type<uint32_t>("u32"),
    number_type<int32_t>("i32"),
    number_type<float>("f32"),
    {"bool", 1, read_bool, read_bools},
    {"string", 0, nullptr, nullptr},
    {"array", 0, nullptr, nullptr},
    number_type<uint64_t>("u64"),
    number_type<int64_t>("i64"),
    number_type<double>("f64"),
}};

}  // namespace

const GgufValueType* find_gguf_value_type(uint32_t type_id) {
  return type_id < kTypes.size() ? &kTypes[type_id] : nullptr;
}

}  // namespace headrace
