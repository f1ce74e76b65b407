#include "kernel_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/registry.h"

namespace headrace {
namespace {

constexpr DType kTested[] = {
    DType::kF32,  DType::kF16,   DType::kBF16,  DType::kQ8_0,  DType::kQ4_0,   DType::kQ4_1,
    DType::kQ5_0, DType::kQ5_1,  DType::kQ4K,   DType::kQ5K,   DType::kQ6K,    DType::kQ2K,
    DType::kQ3K,  DType::kIQ4NL, DType::kIQ4XS, DType::kMXFP4, DType::kF8E4M3, DType::kF64,
};

}  // namespace

std::span<const DType> tested_dtypes() { return kTested; }

std::unique_ptr<TestWeight> random_weight(DType dtype, int64_t num_outputs, int64_t num_inputs,
                                          Random& random) {
  return cpu::sample_weight(dtype, cpu::WeightSample::kRandom, num_outputs, num_inputs, random);
}

std::unique_ptr<TestWeight> whole_weight(DType dtype, int64_t num_outputs, int64_t num_inputs,
                                         Random& random) {
  return cpu::sample_weight(dtype, cpu::WeightSample::kWhole, num_outputs, num_inputs, random);
}

std::vector<float> random_floats(size_t count, Random& random) {
  return cpu::sample_values(cpu::Values::kRandom, 1, static_cast<int64_t>(count), random);
}

std::vector<float> whole_floats(size_t count, Random& random) {
  return cpu::sample_values(cpu::Values::kWhole, 1, static_cast<int64_t>(count), random);
}

GuardedFloats::GuardedFloats(size_t count)
    : count_(count), storage_(count + 2 * kGuard + 16, std::numeric_limits<float>::quiet_NaN()) {
  const auto address = reinterpret_cast<uintptr_t>(storage_.data() + kGuard);
  start_ = kGuard + (64 - address % 64) % 64 / sizeof(float);
  for (size_t i = 0; i < kGuard; ++i) {
    storage_[start_ - kGuard + i] = 12345.0f + static_cast<float>(i);
    storage_[start_ + count_ + i] = 54321.0f + static_cast<float>(i);
  }
}

bool GuardedFloats::intact() const {
  for (size_t i = 0; i < kGuard; ++i) {
    if (storage_[start_ - kGuard + i] != 12345.0f + static_cast<float>(i)) return false;
    if (storage_[start_ + count_ + i] != 54321.0f + static_cast<float>(i)) return false;
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
