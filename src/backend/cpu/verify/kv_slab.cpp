#include "backend/cpu/verify/kv_slab.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/verify/guarded_memory.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr double kSmallestScaled = 1e-30;  // heads below are kept as zeros
constexpr double kLargestF16 = 65504;
constexpr int64_t kLowByte = 64;     // of int16, from its high one
constexpr double kAnyByte = 0x1p20;  // as a tolerance

// Largest distance of a number from the code next to it.
double half_step(Element element, double code) {
  const double magnitude = std::fabs(code);
  switch (element) {
    case Element::kBF16:
      return 0x1p-8 * magnitude + 0x1p-134;
    case Element::kF16:
      return 0x1p-11 * magnitude + 0x1p-25;
    case Element::kFp8:
      return std::max(0x1p-10, std::exp2(std::floor(std::log2(magnitude + 1e-9)) - 4));
    case Element::kInt8:
    case Element::kInt16Bytes:
      return 0.5;
    default:
      return 0;
  }
}

uint8_t nearest_fp8(double value) {
  uint8_t best = 0;
  for (uint8_t code = 1; code < 0x7F; ++code) {
    const double distance = std::fabs(double{e4m3_to_float(code)} - std::fabs(value));
    const double best_distance = std::fabs(double{e4m3_to_float(best)} - std::fabs(value));
    const bool ties_to_even = distance == best_distance && code % 2 == 0;
    if (distance < best_distance || ties_to_even) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace

std::string_view kv_type_name(KvDtype type) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "fp8", "int8", "int16"};
  static_assert(std::size(kNames) == kNumKvDtypes);
  return kNames[static_cast<size_t>(type)];
}

KvSlab::KvSlab(KvDtype type, int num_kv_heads, int head_dim, int64_t num_positions)
    : type_(type), head_dim_(head_dim) {
  const size_t block_bytes = 2 * static_cast<size_t>(num_kv_heads) * kv_plane_bytes(type, head_dim);
  block_stride_ = block_bytes + 192;
  const auto num_blocks = static_cast<int32_t>((num_positions + kKvBlock - 1) / kKvBlock);
  for (int32_t b = 0; b < num_blocks; ++b) {
    const int32_t place = num_blocks - 1 - b;
    table_.push_back(place < num_blocks / 2 ? place : place + 1);
  }
  bytes_.assign(static_cast<size_t>(num_blocks) * block_stride_ + block_bytes, kPoison);
  codes_.resize(bytes_.size() / element_bytes(element()));
  scales_.assign(bytes_.size() / sizeof(float), Expected{0, kAnyValue});
}

Element KvSlab::element() const {
  constexpr Element kElements[] = {Element::kF32, Element::kBF16, Element::kF16,
                                   Element::kFp8, Element::kInt8, Element::kInt16Bytes};
  return kElements[static_cast<size_t>(type_)];
}

double KvSlab::largest_code() const {
  if (type_ == KvDtype::kInt16) return double{kFixedActivationLimit};
  return type_ == KvDtype::kFp8 ? 448.0 : 127.0;
}

size_t KvSlab::plane_at(const Place& place) const {
  const auto block = static_cast<size_t>(table_[static_cast<size_t>(place.position / kKvBlock)]);
  const int plane = 2 * place.head + (place.plane == Plane::kValue ? 1 : 0);
  return block * block_stride_ + static_cast<size_t>(plane) * kv_plane_bytes(type_, head_dim_);
}

size_t KvSlab::code_at(const Place& place, int64_t d) const {
  const int64_t slot = place.position % kKvBlock, dims = padded_dim(head_dim_);
  const int64_t in_word = kv_word_codes(type_);
  const int64_t at = place.plane == Plane::kKey
                         ? (d / in_word * kKvBlock + slot) * in_word + d % in_word
                         : (slot / in_word * dims + d) * in_word + slot % in_word;
  const int64_t element_at = type_ == KvDtype::kInt16 ? at / 64 * kLowByte * 2 + at % 64 : at;
  return plane_at(place) / element_bytes(element()) + static_cast<size_t>(element_at);
}

size_t KvSlab::scale_at(const Place& place) const {
  const size_t codes_bytes =
      static_cast<size_t>(padded_dim(head_dim_) * kKvBlock * kv_code_bytes(type_));
  return (plane_at(place) + codes_bytes) / sizeof(float) +
         static_cast<size_t>(place.position % kKvBlock);
}

void KvSlab::put(size_t code_index, double code) {
  uint8_t* at = bytes_.data() + code_index * element_bytes(element());
  const auto value = static_cast<float>(code);
  uint16_t bits = float_to_bf16(value);
  switch (element()) {
    case Element::kF32:
      std::memcpy(at, &value, sizeof(value));
      return;
    case Element::kF16:
      bits = float_to_f16(static_cast<float>(std::clamp(code, -kLargestF16, kLargestF16)));
      [[fallthrough]];
    case Element::kBF16:
      std::memcpy(at, &bits, sizeof(bits));
      return;
    case Element::kFp8:
      *at = nearest_fp8(code);
      return;
    case Element::kInt16Bytes: {
      const auto whole = static_cast<int>(std::nearbyint(code));
      at[0] = static_cast<uint8_t>((whole + 128) >> 8);
      at[kLowByte] = static_cast<uint8_t>(whole);
      return;
    }
    default:
      *at = static_cast<uint8_t>(static_cast<int>(std::nearbyint(code)));
  }
}

std::vector<double> KvSlab::store(const Place& place, std::span<const float> x) {
  float scale = 1.0f;
  if (is_scaled()) {
    float largest = 0.0f;
    for (const float value : x) largest = std::max(largest, std::fabs(value));
    scale = largest / static_cast<float>(largest_code());
    std::memcpy(bytes_.data() + scale_at(place) * sizeof(scale), &scale, sizeof(scale));
  }
  std::vector<double> kept;
  for (int64_t d = 0; d < padded_dim(head_dim_); ++d) {
    const auto i = static_cast<size_t>(d);
    const size_t at = code_at(place, d);
    put(at, i < x.size() && scale != 0.0f ? double{x[i]} / double{scale} : 0.0);
    if (i >= x.size()) continue;
    const double code = read_element(element(), bytes_.data() + at * element_bytes(element()));
    kept.push_back(code * double{scale});
  }
  return kept;
}

void KvSlab::expect_scaled(const Place& place, std::span<const Approximate> x) {
  Approximate largest;
  for (const Approximate& value : x) {
    if (std::fabs(value.value) > largest.value) largest.value = std::fabs(value.value);
    largest.tolerance = std::max(largest.tolerance, value.tolerance);
  }
  const bool is_zero = largest.value < kSmallestScaled;
  const double scale = is_zero ? 0 : largest.value / largest_code();
  scales_[scale_at(place)] = {scale, largest.tolerance / largest_code() + 2 * kRound * scale};
  // The scale's bytes are no codes.
  for (size_t i = 0; i < sizeof(float); ++i) {
    codes_[scale_at(place) * sizeof(float) + i].tolerance = kAnyValue;
  }
  for (size_t d = 0; d < static_cast<size_t>(padded_dim(head_dim_)); ++d) {
    Expected& code = codes_[code_at(place, static_cast<int64_t>(d))];
    code = {0, 0};
    // Of the low byte the bits count alone: its number is that of the high one.
    if (type_ == KvDtype::kInt16) (&code)[kLowByte] = {0, kAnyByte};
    if (is_zero || d >= x.size()) continue;
    code.value = x[d].value / scale;
    code.tolerance = half_step(element(), code.value) + 8 * kRound * std::fabs(code.value) +
                     (x[d].tolerance + largest.tolerance) / scale;
  }
}

void KvSlab::expect(const Place& place, std::span<const Approximate> x) {
  if (is_scaled()) return expect_scaled(place, x);
  for (size_t d = 0; d < static_cast<size_t>(padded_dim(head_dim_)); ++d) {
    Expected& code = codes_[code_at(place, static_cast<int64_t>(d))];
    code = {0, 0};
    if (d >= x.size()) continue;
    double value = x[d].value;
    if (element() == Element::kF16) value = std::clamp(value, -kLargestF16, kLargestF16);
    code.value = value;
    code.tolerance = x[d].tolerance + half_step(element(), value);
    if (x[d].tolerance > 0) continue;
    // An exact number has one nearest code.
    code.tolerance = 0;
    if (element() == Element::kBF16) {
      code.value = double{bf16_to_float(float_to_bf16(static_cast<float>(value)))};
    } else if (element() == Element::kF16) {
      code.value = double{f16_to_float(float_to_f16(static_cast<float>(value)))};
    }
  }
}

Operand KvSlab::input() const {
  return input_of("KV blocks", std::span<const uint8_t>(bytes_), 64);
}

Operand KvSlab::codes_output() const {
  Operand operand = input();
  operand.is_output = true;
  operand.element = element();
  operand.expected = codes_;
  return operand;
}

Operand KvSlab::scales_output() const {
  Operand operand = input();
  operand.is_output = true;
  operand.element = Element::kF32;
  operand.expected = scales_;
  return operand;
}

}  // namespace headrace::cpu
