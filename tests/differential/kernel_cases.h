// Shared by the differential suites: weights in every storage format, guarded buffers, back ends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/verify/samples.h"
#include "backend/device_access.h"
#include "base/dtype.h"

namespace headrace {

using cpu::Random;
using TestWeight = cpu::SampleWeight;

// Random blocks with finite factors of ordinary size.
std::unique_ptr<TestWeight> random_weight(DType dtype, int64_t num_outputs, int64_t num_inputs,
                                          Random& random);
// Small whole numbers in a format that holds them: products and sums are exact.
std::unique_ptr<TestWeight> whole_weight(DType dtype, int64_t num_outputs, int64_t num_inputs,
                                         Random& random);

std::span<const DType> tested_dtypes();

std::vector<float> random_floats(size_t count, Random& random);
std::vector<float> whole_floats(size_t count, Random& random);

// `count` floats of NaN between canaries; intact() says that nothing outside was written.
class GuardedFloats {
 public:
  explicit GuardedFloats(size_t count);
  float* data() { return storage_.data() + start_; }  // at a 64-byte boundary
  std::span<const float> values() const { return {storage_.data() + start_, count_}; }
  bool intact() const;
  bool all_finite() const;

 private:
  static constexpr size_t kGuard = 64;
  size_t count_;
  std::vector<float> storage_;
  size_t start_ = 0;
};

// Units that this processor can run, by name.
std::vector<std::string> available_isas();
std::unique_ptr<Backend> make_backend(const std::string& isa, int num_threads);

// Whether this unit multiplies coded weights as fixed-point numbers, in both modes.
inline bool takes_fixed_point(const std::string& isa) { return isa == "amx"; }

bool same_bits(std::span<const float> a, std::span<const float> b);

// How far a float32 sum of `num_terms` products in slices may lie from the exact one.
double sum_tolerance(int64_t num_terms, double sum_of_magnitudes);

}  // namespace headrace
