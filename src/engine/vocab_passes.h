// Passes over one value per token of the vocabulary, as vectors of sixteen floats.
//
// Each is compiled for AVX-512, for AVX2 and for any processor from the same lines of plain
// arithmetic without fused operations: the bits are equal. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace headrace {

// For tests: true runs what a processor without AVX runs.
void force_plain_vocab_passes(bool plain);

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
};
double weigh_vocab(const VocabWeights& args);  // the sum of the weights
// The quantum of sums over `count` weights is 2^quantum_exponent(count).
int quantum_exponent(size_t count);

// bins[i] = which of num_bins equal steps from largest down to largest - span holds values[i];
// what lies below is in the last.
struct VocabBins {
  const float* values = nullptr;
  size_t count = 0;
  float largest = 0;
  float span = 0;
  int num_bins = 0;
  uint16_t* bins = nullptr;
};
void bin_vocab(const VocabBins& args);

// The weights of values of at least `limit`, added up: exact in any order, as all sums of weights.
double sum_from(const float* values, const float* weights, size_t count, float limit);

// Of each block of 64 ids: how many values are close enough to the largest to count, and the sums
// of their distances from it and of the squares. What lies kFarBelow or more below it was put there
// by a bias.
inline constexpr float kFarBelow = 1e4f;
struct BlockSpread {
  double count = 0, sum = 0, squares = 0;
};
void spread_blocks(const float* values, size_t count, float largest, BlockSpread* blocks);

// sums[b] = sum of weight * (value - largest) over ids [64 b, 64 b + 64).
void sum_weighed_blocks(const float* values, const float* weights, size_t count, float largest,
                        double* sums);

// How near the values are to a place: (value - largest) should be `centre`.
struct VocabNearness {
  const float* values = nullptr;
  size_t count = 0;
  float largest = 0;
  float centre = 0;
};
// nearness[i] = -|value - largest - centre|.
void measure_nearness(const VocabNearness& args, float* nearness);
float nearness_of_vocab(float value, float largest, float centre);
// The values that are at least as near as `least`: their weights, the largest of these, and the
// weights of the values above them. Exact in any order.
struct VocabRun {
  double above = 0, inside = 0;
  float largest_weight = 0;
};
VocabRun sum_near(const VocabNearness& args, float least, const float* weights);

// Weights of what comes after values[last] in order (a lower value, or an equal one behind it)
// become 0.
void drop_after(const float* values, size_t count, float value, int32_t last, float* weights);

// Ids i with bins[i] from first to last, ascending, room for all; returns how many.
size_t gather_bins(const uint16_t* bins, size_t count, uint16_t first, uint16_t last, int32_t* ids);

// Ids i with weights[i] >= limit, ascending, at most max_ids; returns how many there are, or
// something above max_ids if there are more.
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
