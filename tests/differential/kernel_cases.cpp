#include "kernel_cases.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/topology.h"
#include "base/numeric.h"

namespace headrace {
namespace {

constexpr DType kTested[] = {
    DType::kF32,  DType::kF16,   DType::kBF16,  DType::kQ8_0,  DType::kQ4_0,   DType::kQ4_1,
    DType::kQ5_0, DType::kQ5_1,  DType::kQ4K,   DType::kQ5K,   DType::kQ6K,    DType::kQ2K,
    DType::kQ3K,  DType::kIQ4NL, DType::kIQ4XS, DType::kMXFP4, DType::kF8E4M3, DType::kF64,
};

// Byte offsets of the f16 factors in a block.
std::vector<size_t> half_offsets(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kIQ4NL:
    case DType::kIQ4XS:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      return {0, 2};
    case DType::kQ6K:
      return {208};
    case DType::kQ2K:
      return {80, 82};
    case DType::kQ3K:
      return {108};
    default:
      return {};
  }
}

void put_half(std::byte* at, float value) {
  const uint16_t bits = float_to_f16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

void put_value(DType dtype, std::byte* at, float value) {
  if (dtype == DType::kF32) std::memcpy(at, &value, sizeof(value));
  if (dtype == DType::kF16) put_half(at, value);
  if (dtype == DType::kBF16) {
    const uint16_t bits = float_to_bf16(value);
    std::memcpy(at, &bits, sizeof(bits));
  }
  if (dtype == DType::kF64) {
    const double wide = value;
    std::memcpy(at, &wide, sizeof(wide));
  }
}

void fill_block(DType dtype, std::byte* block, Random& random) {
  const DTypeRow& row = dtype_row(dtype);
  for (size_t i = 0; i < row.block_bytes; ++i) block[i] = static_cast<std::byte>(random() & 0xFF);
  std::uniform_real_distribution<float> factor(-0.02f, 0.02f);
  for (const size_t offset : half_offsets(dtype)) put_half(block + offset, factor(random));
  if (dtype == DType::kMXFP4) block[0] = static_cast<std::byte>(118 + random() % 8);
  if (dtype == DType::kF8E4M3) block[0] = static_cast<std::byte>(random() % 0x7F);  // no NaN
  if (row.block_elements == 1 && dtype != DType::kF8E4M3) {
    std::normal_distribution<float> value(0.0f, 0.1f);
    put_value(dtype, block, value(random));
  }
}

std::unique_ptr<TestWeight> empty_weight(DType dtype, int64_t num_outputs, int64_t num_inputs) {
  const DTypeRow& row = dtype_row(dtype);
  auto weight = std::make_unique<TestWeight>();
  const auto num_blocks = static_cast<size_t>(num_outputs * num_inputs) / row.block_elements;
  weight->bytes.resize(num_blocks * row.block_bytes);
  WeightView& view = weight->view;
  view.name = "test";
  view.num_outputs = num_outputs;
  view.num_inputs = num_inputs;
  view.values.data = weight->bytes.data();
  view.values.dtype = dtype;
  view.values.rank = 2;
  view.values.shape = {num_outputs, num_inputs};
  view.values.num_bytes = weight->bytes.size();
  return weight;
}

void read_values(TestWeight* weight) {
  const WeightView& view = weight->view;
  weight->values.resize(static_cast<size_t>(view.num_outputs * view.num_inputs));
  dequantise_rows(view, 0, view.num_outputs, weight->values.data());
}

}  // namespace

std::span<const DType> tested_dtypes() { return kTested; }

std::unique_ptr<TestWeight> random_weight(DType dtype, int64_t num_outputs, int64_t num_inputs,
                                          Random& random) {
  auto weight = empty_weight(dtype, num_outputs, num_inputs);
  const size_t block_bytes = dtype_row(dtype).block_bytes;
  for (size_t i = 0; i < weight->bytes.size(); i += block_bytes) {
    fill_block(dtype, weight->bytes.data() + i, random);
  }
  read_values(weight.get());
  return weight;
}

std::unique_ptr<TestWeight> whole_weight(DType dtype, int64_t num_outputs, int64_t num_inputs,
                                         Random& random) {
  auto weight = empty_weight(dtype, num_outputs, num_inputs);
  const size_t block_bytes = dtype_row(dtype).block_bytes;
  for (size_t i = 0; i < weight->bytes.size(); i += block_bytes) {
    std::byte* block = weight->bytes.data() + i;
    fill_block(dtype, block, random);
    for (const size_t offset : half_offsets(dtype)) put_half(block + offset, 1.0f);
    if (dtype == DType::kMXFP4) block[0] = std::byte{128};
    if (dtype_row(dtype).block_elements == 1) {
      put_value(dtype, block, static_cast<float>(static_cast<int>(random() % 7) - 3));
    }
  }
  read_values(weight.get());
  return weight;
}

std::vector<float> random_floats(size_t count, Random& random) {
  std::normal_distribution<float> value;
  std::vector<float> values(count);
  for (float& v : values) v = value(random);
  return values;
}

std::vector<float> whole_floats(size_t count, Random& random) {
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 3) - 1);
  return values;
}

GuardedFloats::GuardedFloats(size_t count)
    : count_(count), storage_(count + 2 * kGuard, std::numeric_limits<float>::quiet_NaN()) {
  for (size_t i = 0; i < kGuard; ++i) {
    storage_[i] = 12345.0f + static_cast<float>(i);
    storage_[kGuard + count_ + i] = 54321.0f + static_cast<float>(i);
  }
}

bool GuardedFloats::intact() const {
  for (size_t i = 0; i < kGuard; ++i) {
    if (storage_[i] != 12345.0f + static_cast<float>(i)) return false;
    if (storage_[kGuard + count_ + i] != 54321.0f + static_cast<float>(i)) return false;
  }
  return true;
}

bool GuardedFloats::all_finite() const {
  for (const float v : values()) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const cpu::KernelUnit* unit : cpu::all_units()) {
    if ((unit->isa & ~cpu::detect_isa()) == 0) names.emplace_back(unit->name);
  }
  return names;
}

std::unique_ptr<Backend> make_backend(const std::string& isa, int num_threads) {
  auto backend = create_cpu_backend({isa, num_threads});
  EXPECT_TRUE(backend.ok());
  EXPECT_EQ(backend.value()->isa(), isa);
  return std::move(backend).value();
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

double sum_tolerance(int64_t num_terms, double sum_of_magnitudes) {
  // Rounding errors of a sum add up like a random walk; 4 is a generous number of deviations, and
  // one more epsilon per term covers the product's and the weight's own rounding.
  const double steps =
      std::min<double>(256, static_cast<double>(num_terms)) + static_cast<double>(num_terms) / 256;
  return 0x1p-24 * (4 * std::sqrt(steps) + 3) * sum_of_magnitudes + 1e-30;
}

}  // namespace headrace
