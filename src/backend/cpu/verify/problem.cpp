#include "backend/cpu/verify/problem.h"

#include <cstring>

#include "backend/cpu/verify/guarded_memory.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

template <typename T>
std::vector<uint8_t> bytes_of(std::span<const T> values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  return {first, first + values.size_bytes()};
}

size_t strided_floats(int64_t rows, int64_t width, int64_t stride) {
  return rows == 0 ? 0 : static_cast<size_t>((rows - 1) * stride + width);
}

}  // namespace

size_t element_bytes(Element element) {
  constexpr size_t kBytes[] = {4, 2, 2, 1, 1, 1, 1};
  return kBytes[static_cast<size_t>(element)];
}

double read_element(Element element, const uint8_t* at) {
  if (element == Element::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return double{value};
  }
  if (element == Element::kByte) return static_cast<double>(*at);
  if (element == Element::kInt8) return static_cast<double>(static_cast<int8_t>(*at));
  if (element == Element::kInt16Bytes) {
    return static_cast<double>(static_cast<int8_t>(at[0]) * 256 + static_cast<int8_t>(at[64]));
  }
  if (element == Element::kFp8) return double{e4m3_to_float(*at)};
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return double{element == Element::kF16 ? f16_to_float(bits) : bf16_to_float(bits)};
}

Operand input_of(std::string_view name, std::span<const float> values) {
  Operand operand;
  operand.name = name;
  operand.bytes = bytes_of(values);
  return operand;
}

Operand input_of(std::string_view name, std::span<const int32_t> values) {
  Operand operand;
  operand.name = name;
  operand.bytes = bytes_of(values);
  return operand;
}

Operand input_of(std::string_view name, std::span<const uint8_t> bytes, size_t alignment) {
  Operand operand;
  operand.name = name;
  operand.bytes.assign(bytes.begin(), bytes.end());
  operand.alignment = alignment;
  return operand;
}

Operand strided_input(std::string_view name, std::span<const float> values, int64_t width,
                      int64_t stride) {
  const int64_t rows = width == 0 ? 0 : static_cast<int64_t>(values.size()) / width;
  Operand operand;
  operand.name = name;
  operand.bytes.assign(strided_floats(rows, width, stride) * 4, kPoison);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(operand.bytes.data() + r * stride * 4, values.data() + r * width,
                static_cast<size_t>(width) * 4);
  }
  return operand;
}

Operand poisoned_output(std::string_view name, int64_t rows, int64_t width, int64_t stride) {
  Operand operand;
  operand.name = name;
  operand.is_output = true;
  operand.expected.resize(strided_floats(rows, width, stride));
  operand.bytes.assign(operand.expected.size() * 4, kPoison);
  return operand;
}

Operand scratch_of(int64_t num_floats) {
  Operand operand;
  operand.name = "scratch";
  operand.alignment = 64;
  operand.scratch_bytes = static_cast<size_t>(num_floats) * sizeof(float);
  operand.is_output = true;
  return operand;
}

}  // namespace headrace::cpu
