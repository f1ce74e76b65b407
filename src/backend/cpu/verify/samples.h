// Samples: inputs and weights that verification feeds to kernels, from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "base/dtype.h"
#include "checkpoint/weight_view.h"

namespace headrace::cpu {

// Splitmix64, upper half: quick to seed and to draw, as the start of the program needs.
class Random {
 public:
  using result_type = uint32_t;
  explicit Random(uint64_t seed) : state_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT32_MAX; }
  result_type operator()();
  // Nearly normal, deviation 1, all 24 bits of the mantissa in use.
  float normal();

 private:
  uint64_t state_;
};

enum class Values : uint8_t {
  kRandom,       // normal, deviation 1
  kOneHot,       // a single 1 per row: first, last, then random places
  kRamp,         // rising with the place
  kAlternating,  // 1.25, -1.25, ...
  kLarge,        // random times 2^40
  kSmall,        // random times 2^-40
  kDenormal,     // below 2^-126
  kMixed,        // exponents from -24 to 24
  kSizes,        // random; each row of another size, from 2^-80 to 2^104
  kZeroOne,      // 0 or 1
  kWhole,        // -2 .. 2
  kNan,          // random; in every second row one NaN
  kInfinite,     // random; in every second row infinities
  kHuge,         // up to the largest float
  kVanishing,    // around kSmallestActivation
  kTies,         // halfway between two integer activations
  kConstant,     // one value per row, +-1 or nearly +-2: all terms of a sum have one sign
  kCount,
};

std::string_view values_name(Values values);
// Whole numbers: float32 sums and products of them are exact.
inline bool are_whole(Values values) {
  return values == Values::kOneHot || values == Values::kZeroOne || values == Values::kWhole;
}
// Rounding errors of sums of these do not average out.
inline bool are_structured(Values values) { return values != Values::kRandom; }

// [rows, width].
std::vector<float> sample_values(Values values, int64_t rows, int64_t width, Random& random);

// Where types in tiles have a row's bytes, by the definition alone: of line `index` of all of K,
// and of slice `index` the unit and the sums.
class TilePlaces {
 public:
  TilePlaces(ActivationType type, int64_t row, int64_t num_rows, int64_t num_inputs);
  int64_t line(int64_t index) const { return tile_ + (index * height_ + in_tile_) * 64; }
  int64_t unit(int64_t index) const { return behind_lines(index) + in_tile_ * 4; }
  int64_t sums(int64_t index) const { return behind_lines(index) + height_ * 64 + in_tile_ * 64; }

 private:
  int64_t behind_lines(int64_t slice) const {
    return tile_ + height_ * (num_slices_ * 8 * 64 + slice * 128);
  }
  int64_t num_slices_, in_tile_, height_, tile_;
};

// Rows of x as integer activations (ActivationType), by the definition alone.
struct QuantisedSample {
  ActivationType type;
  int64_t num_rows, num_inputs;
  std::vector<int32_t> codes;  // X, [rows, inputs]
  std::vector<float> scales;   // [rows, inputs / kActivationBlock]; NaN where x is no number

  double value(int64_t row, int64_t input) const {
    const auto at = static_cast<size_t>(row * num_inputs + input);
    return double{scales[at / kActivationBlock]} * codes[at];
  }
  // The records of one slice after the other, or rows in tiles; what is not defined is poison.
  std::vector<uint8_t> records() const;
  int64_t stride() const;  // the x_stride of products
};
QuantisedSample quantise_sample(ActivationType type, std::span<const float> x, int64_t num_rows,
                                int64_t num_inputs);
// Small whole numbers, |x| <= 2, as they are.
QuantisedSample whole_sample(ActivationType type, std::span<const float> x, int64_t num_rows,
                             int64_t num_inputs);

// Rows of x as bf16 activations, by the definition alone.
struct RoundedSample {
  ActivationType type;
  int64_t num_rows, num_inputs;
  std::vector<float> terms[2];  // [rows, inputs]

  // What products read: denormals are zeros.
  double value(int64_t row, int64_t input) const;
  // As of QuantisedSample; blocks beyond K are poison.
  std::vector<uint8_t> records() const;
  int64_t stride() const;
  int64_t block_at(int64_t row, int64_t k) const;  // the terms of input k and the rest of its block
};
RoundedSample round_sample(ActivationType type, std::span<const float> x, int64_t num_rows,
                           int64_t num_inputs);

enum class WeightSample : uint8_t {
  kRandom,   // random codes, factors of ordinary size
  kExtreme,  // factors at the ends of their formats: subnormal, largest, negative, zero
  kWhole,    // small whole numbers
  kNan,      // random, but a few values or factors are NaN
  kFilled,   // every byte of a block's codes the same: largest and smallest codes
  kTypical,  // for timing: as kRandom, but 8-bit floats of normal values, as checkpoints have them
};
std::string_view weight_sample_name(WeightSample sample);

// A weight with its bytes. `values` are what the format says, from dequantise_rows.
struct SampleWeight {
  WeightView view;
  std::vector<std::byte> bytes;                // of a weight in one tensor
  std::deque<std::vector<std::byte>> tensors;  // of a weight in several
  std::vector<float> values;                   // [N, K]
};
std::unique_ptr<SampleWeight> sample_weight(DType dtype, WeightSample sample, int64_t num_outputs,
                                            int64_t num_inputs, Random& random);
// A weight that is packed in this layout; num_inputs are whole_inputs() of some number.
std::unique_ptr<SampleWeight> sample_weight(Layout layout, WeightSample sample, int64_t num_outputs,
                                            int64_t num_inputs, Random& random);
// The next number of inputs from `inputs` on that the layout can hold.
int64_t whole_inputs(Layout layout, int64_t inputs);
float sample_factor(WeightSample sample, Random& random);

// The same of the layouts of quantised safetensors, is_of_groups().
int64_t group_inputs(Layout layout, int64_t inputs);
std::unique_ptr<SampleWeight> sample_group_weight(Layout layout, WeightSample sample,
                                                  int64_t num_outputs, int64_t num_inputs,
                                                  Random& random);

// A sample in its packed layout, all panels.
struct PackedSample {
  std::vector<uint8_t> bytes;
  size_t panel_bytes = 0;
  int64_t num_panels = 0;
};
PackedSample pack_sample(const SampleWeight& weight, Layout layout);

}  // namespace headrace::cpu
