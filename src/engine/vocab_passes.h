// Passes over one value per token of the vocabulary, as vectors of sixteen floats.
//
// Each is compiled for AVX-512, for AVX2 and for any processor from the same lines of plain
// arithmetic without fused operations: the bits are equal. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace headrace {

// For tests: what a processor with no more than this runs; never more than this one has.
enum class VocabForm : uint8_t { kPlain, kAvx2, kAvx512 };
void limit_vocab_form(VocabForm most);

// Largest and smallest value, minus infinity left out of the smallest; finite: all are.
struct VocabRange {
  float largest = 0;
  float smallest = 0;
  bool finite = true;
};
VocabRange vocab_range(const float* values, size_t count);

// weights[i] = exp_of_vocab(values[i], largest, temperature), rounded to a multiple of a power of
// two, the quantum, so small that sums of as many weights as `vocab_size` are exact in float64, in
// any order.
struct VocabWeights {
  const float* values = nullptr;
  size_t count = 0;       // of a row or a part of it
  size_t vocab_size = 0;  // of the row
  float largest = 0;
  float temperature = 1;
  float lowest = -std::numeric_limits<float>::infinity();  // values below it weigh nothing
  float* weights = nullptr;
  bool sums = true;

  VocabWeights part(size_t first, size_t end) const {
    VocabWeights some = *this;
    some.values += first;
    some.weights += first;
    some.count = end - first;
    return some;
  }
};
// The sum of the weights; 0 if nobody wants it.
double weigh_vocab(const VocabWeights& args);
// The quantum of sums over `count` weights is 2^quantum_exponent(count).
int quantum_exponent(size_t count);

// The range that most of the values are in, of a sample of them, minus infinity left out of the
// smallest; finite: the sample had enough that are.
VocabRange usual_range(const float* values, size_t count);
// Of the same sample: the share of values that are at least `least`.
float usual_share(const float* values, size_t count, float least);

// steps[i] = which of kVocabSteps equal steps from `highest` down to highest - span holds
// values[i]; what lies above is in the first, what lies below in the last. To the sums is added
// what each step holds, so they begin at 0. Exact in any order.
inline constexpr int kVocabSteps = 256;
struct VocabSteps {
  const float* values = nullptr;
  const float* weights = nullptr;
  size_t count = 0;       // of a row or a part of it
  size_t vocab_size = 0;  // of the row
  float highest = 0;
  float span = 1;  // above 0
  uint8_t* steps = nullptr;
};
struct StepSums {
  std::array<double, kVocabSteps> weights = {};
  std::array<uint32_t, kVocabSteps> counts = {};
};
void step_vocab(const VocabSteps& args, StepSums* sums);
// weigh_vocab() without its sum, and step_vocab() of the weights it writes, in one pass.
void weigh_and_step_vocab(const VocabWeights& weights, const VocabSteps& steps, StepSums* sums);
// Ids i with steps[i] in one of two runs of steps, or in one run given twice, ascending, room for
// all; returns how many.
struct StepRuns {
  uint8_t first = 0, last = 0;
  uint8_t other_first = 0, other_last = 0;
};
size_t gather_steps(const uint8_t* steps, size_t count, const StepRuns& runs, int32_t* ids);

// Of each chunk of 1024 ids: how many values are close enough to the largest to count, and the sums
// of their distances from it and of the squares. What lies kFarBelow or more below it was put there
// by a bias.
inline constexpr size_t kVocabChunk = 1024;
inline constexpr float kFarBelow = 1e4f;
struct VocabSpread {
  double count = 0, sum = 0, squares = 0;
};
struct VocabSpreads {
  const float* values = nullptr;
  size_t count = 0;
  float largest = 0;
  bool all_near = false;  // none is that far below
};
void spread_vocab(const VocabSpreads& args, VocabSpread* chunks);

// sums[c] = sum of weight * (value - largest) over ids [1024 c, 1024 c + 1024).
struct VocabSums {
  const float* values = nullptr;
  const float* weights = nullptr;
  size_t count = 0;
  float largest = 0;
  float lowest = std::numeric_limits<float>::lowest();  // finite; values below it are left out
};
void sum_weighed(const VocabSums& args, double* sums);

// -|value - largest - centre|: how near a value is to a place, 0 at most.
inline float nearness_of_vocab(float value, float largest, float centre) {
  const float distance = (value - largest) - centre;
  return distance < 0.0f ? distance : -distance;
}

// Values without a bit in the mask become minus infinity; the range of what is left.
VocabRange mask_vocab(const uint64_t* mask, size_t count, float* values);

// Ids i with weights[i] >= limit, ascending, room for all; returns how many there are, or something
// above max_ids if there are more.
size_t gather_heavy(const float* weights, size_t count, float limit, int32_t* ids, size_t max_ids);

// The weight of one value, as weigh_vocab() over `count` of them gives it.
float weigh_one(float value, float largest, float temperature, size_t count);

// exp((value - largest) / temperature), relative error below 3e-7, 0 below exp(-87); not rounded.
float exp_of_vocab(float value, float largest, float temperature);
// sums[b] = sum of exp_of_vocab() over ids [64 b, 64 b + 64), in float64; writes no weights.
inline constexpr size_t kVocabBlock = 64;
void sum_vocab_blocks(const VocabWeights& args, double* sums);
// How many of the values are above `value`, and how many are equal to it.
struct VocabCounts {
  int64_t above = 0, equal = 0;
};
VocabCounts count_vocab(const float* values, size_t count, float value);
// largest[b] of ids [64 b, 64 b + 64).
void block_largest(const float* values, size_t count, float* largest);

}  // namespace headrace
