#include "engine/vocab_passes.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/numeric.h"

// Vectors are passed between functions that are always inlined, so their calling convention is
// nobody's concern.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace headrace {
namespace {

constexpr size_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Shorts = uint16_t __attribute__((vector_size(32)));
using ManyShorts = uint16_t __attribute__((vector_size(64)));
using Doubles = double __attribute__((vector_size(128)));
using FourFloats = float __attribute__((vector_size(16)));
using FourDoubles = double __attribute__((vector_size(32)));

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kRoundToInteger = 0x1.8p23f;  // adding it leaves no bits below 1

// A part of a row as sixteen floats; lanes past the end hold `rest`.
[[gnu::always_inline]] inline Floats load(const float* values, size_t left, float rest) {
  Floats loaded;
  if (left >= kLanes) {
    std::memcpy(&loaded, values, sizeof(loaded));
    return loaded;
  }
  for (size_t i = 0; i < kLanes; ++i) loaded[i] = i < left ? values[i] : rest;
  return loaded;
}

// Method: x = n ln2 + r with |r| <= ln2 / 2 (Cody and Waite), then a Taylor polynomial of degree 7.
template <typename F, typename I>
[[gnu::always_inline]] inline F exp_of(F x) {
  const F low = F{} - 87.0f;
  const F clamped = x < low ? low : x;
  const F n = (clamped * 1.44269504f + kRoundToInteger) - kRoundToInteger;
  const F r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  F p = F{} + 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I bits;
  if constexpr (sizeof(F) == sizeof(float)) {
    bits = static_cast<int32_t>(n);
  } else {
    bits = __builtin_convertvector(n, I);
  }
  bits = (bits + 127) << 23;
  F scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return x < low ? F{} : p * scale;
}

[[gnu::always_inline]] inline Floats weight_of(Floats value, float largest, float temperature) {
  return exp_of<Floats, Ints>((value - largest) / temperature);
}

[[gnu::always_inline]] inline double sum_of(const Doubles& lanes) {
  FourDoubles quarters[kLanes / 4];
  std::memcpy(quarters, &lanes, sizeof(quarters));
  const FourDoubles sum = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

[[gnu::always_inline]] inline VocabRange range_body(const float* values, size_t count) {
  Floats largest = Floats{} + kLowest, smallest = Floats{} - kLowest;
  Ints bad = {};
  const float first = values[0];
  for (size_t i = 0; i < count; i += kLanes) {
    const Floats value = load(values + i, count - i, first);
    Ints bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bad |= (bits & 0x7F800000) == 0x7F800000;
    largest = value > largest ? value : largest;
    const Floats counted = value == kLowest ? smallest : value;
    smallest = counted < smallest ? counted : smallest;
  }
  VocabRange range{largest[0], smallest[0], bad[0] == 0};
  for (size_t i = 1; i < kLanes; ++i) {
    range.largest = largest[i] > range.largest ? largest[i] : range.largest;
    range.smallest = smallest[i] < range.smallest ? smallest[i] : range.smallest;
    range.finite = range.finite && bad[i] == 0;
  }
  return range;
}

// As many of the lanes as are left.
[[gnu::always_inline]] inline void store(const Floats& lanes, size_t left, float* values) {
  if (left >= kLanes) {
    std::memcpy(values, &lanes, sizeof(lanes));
  } else {
    std::memcpy(values, &lanes, left * sizeof(float));
  }
}

[[gnu::always_inline]] inline double weigh_body(const VocabWeights& a) {
  // Weights below the limit are rounded by adding a number whose last bit is the quantum; those
  // above it are multiples already.
  const float limit = std::ldexp(1.0f, quantum_exponent(a.vocab_size) + 23);
  const float rounder = 1.5f * limit;
  Doubles sum = {};
  for (size_t i = 0; i < a.count; i += kLanes) {
    const size_t left = a.count - i;
    const Floats value = load(a.values + i, left, kLowest);
    Floats weight = weight_of(value, a.largest, a.temperature);
    weight = weight < limit ? (weight + rounder) - rounder : weight;
    weight = value < a.lowest ? Floats{} : weight;
    sum += __builtin_convertvector(weight, Doubles);
    store(weight, left, a.weights + i);
  }
  return sum_of(sum);
}

[[gnu::always_inline]] inline double sum_from_body(const float* values, const float* weights,
                                                   size_t count, float limit) {
  Doubles sum = {};
  for (size_t i = 0; i < count; i += kLanes) {
    const Floats value = load(values + i, count - i, kLowest);
    const Floats weight = load(weights + i, count - i, 0);
    sum += __builtin_convertvector(value >= limit ? weight : Floats{}, Doubles);
  }
  return sum_of(sum);
}

[[gnu::always_inline]] inline void spread_body(const float* values, size_t count, float largest,
                                               BlockSpread* blocks) {
  for (size_t first = 0; first < count; first += kVocabBlock) {
    Ints number = {};
    Doubles sum = {}, squares = {};
    const size_t end = first + kVocabBlock < count ? first + kVocabBlock : count;
    for (size_t i = first; i < end; i += kLanes) {
      const Floats value = load(values + i, end - i, kLowest);
      const Floats distance = value - largest;
      const Ints counted = distance > -kFarBelow;
      number -= counted;
      const Floats below = counted ? distance : Floats{};
      const Doubles wide = __builtin_convertvector(below, Doubles);
      sum += wide;
      squares += wide * wide;
    }
    const double total = sum_of(__builtin_convertvector(number, Doubles));
    blocks[first / kVocabBlock] = {total, sum_of(sum), sum_of(squares)};
  }
}

[[gnu::always_inline]] inline void weighed_blocks_body(const float* values, const float* weights,
                                                       size_t count, float largest, double* sums) {
  for (size_t first = 0; first < count; first += kVocabBlock) {
    Doubles sum = {};
    const size_t end = first + kVocabBlock < count ? first + kVocabBlock : count;
    for (size_t i = first; i < end; i += kLanes) {
      const Floats weight = load(weights + i, end - i, 0);
      const Floats value = load(values + i, end - i, largest);
      const Floats below = weight > 0.0f ? value - largest : Floats{};
      sum += __builtin_convertvector(weight, Doubles) * __builtin_convertvector(below, Doubles);
    }
    sums[first / kVocabBlock] = sum_of(sum);
  }
}

[[gnu::always_inline]] inline Floats nearness_of(Floats value, float largest, float centre) {
  const Floats distance = (value - largest) - centre;
  return distance < 0.0f ? distance : -distance;
}

[[gnu::always_inline]] inline void nearness_body(const VocabNearness& a, float* nearness) {
  for (size_t i = 0; i < a.count; i += kLanes) {
    const Floats value = load(a.values + i, a.count - i, kLowest);
    store(nearness_of(value, a.largest, a.centre), a.count - i, nearness + i);
  }
}

[[gnu::always_inline]] inline VocabRun near_body(const VocabNearness& a, float least,
                                                 const float* weights) {
  Floats most = {};
  Doubles above = {}, inside = {};
  for (size_t i = 0; i < a.count; i += kLanes) {
    const Floats value = load(a.values + i, a.count - i, kLowest);
    const Floats weight = load(weights + i, a.count - i, 0);
    const Ints near = nearness_of(value, a.largest, a.centre) >= least;
    const Ints higher = (value - a.largest > a.centre) & ~near;
    const Floats kept = near ? weight : Floats{};
    most = kept > most ? kept : most;
    inside += __builtin_convertvector(kept, Doubles);
    above += __builtin_convertvector(higher ? weight : Floats{}, Doubles);
  }
  VocabRun run{sum_of(above), sum_of(inside), most[0]};
  for (size_t i = 1; i < kLanes; ++i) {
    run.largest_weight = most[i] > run.largest_weight ? most[i] : run.largest_weight;
  }
  return run;
}

[[gnu::always_inline]] inline void drop_body(const float* values, size_t count, float value,
                                             int32_t last, float* weights) {
  Ints ids;
  for (size_t i = 0; i < kLanes; ++i) ids[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < count; i += kLanes) {
    const Floats here = load(values + i, count - i, kLowest);
    const Floats weight = load(weights + i, count - i, 0);
    const Ints stays = (here > value) | ((here == value) & (ids <= last));
    store(stays ? weight : Floats{}, count - i, weights + i);
    ids += static_cast<int32_t>(kLanes);
  }
}

[[gnu::always_inline]] inline void bin_body(const VocabBins& a) {
  const Floats last = Floats{} + static_cast<float>(a.num_bins - 1);
  const float scale = a.span > 0 ? static_cast<float>(a.num_bins) / a.span : 0.0f;
  for (size_t i = 0; i < a.count; i += kLanes) {
    const Floats below = a.largest - load(a.values + i, a.count - i, a.largest);
    const Floats clamped = below < a.span ? below : Floats{} + a.span;
    const Floats step = clamped * scale;
    const Ints bin = __builtin_convertvector(step < last ? step : last, Ints);
    const Shorts narrow = __builtin_convertvector(bin, Shorts);
    const size_t left = a.count - i;
    if (left >= kLanes) {
      std::memcpy(a.bins + i, &narrow, sizeof(narrow));
    } else {
      std::memcpy(a.bins + i, &narrow, left * sizeof(uint16_t));
    }
  }
}

[[gnu::always_inline]] inline size_t gather_body(const float* weights, size_t count, float limit,
                                                 int32_t* ids, size_t max_ids) {
  size_t found = 0;
  for (size_t i = 0; i < count; i += kLanes) {
    const Ints heavy = load(weights + i, count - i, kLowest) >= limit;
    int64_t words[kLanes / 2];
    std::memcpy(words, &heavy, sizeof(words));
    int64_t any = 0;
    for (const int64_t word : words) any |= word;
    if (any == 0) continue;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (heavy[lane] == 0 || i + lane >= count) continue;
      if (found < max_ids) ids[found] = static_cast<int32_t>(i + lane);
      ++found;
    }
    if (found > max_ids) break;
  }
  return found;
}

[[gnu::always_inline]] inline size_t gather_bins_body(const uint16_t* bins, size_t count,
                                                      uint16_t first, uint16_t last, int32_t* ids) {
  constexpr size_t kRun = sizeof(ManyShorts) / sizeof(uint16_t);
  size_t found = 0;
  for (size_t i = 0; i < count; i += kRun) {
    const size_t end = i + kRun < count ? i + kRun : count;
    if (i + kRun <= count) {
      ManyShorts run;
      std::memcpy(&run, bins + i, sizeof(run));
      const ManyShorts wanted = (run >= first) & (run <= last);
      int64_t words[sizeof(ManyShorts) / sizeof(int64_t)];
      std::memcpy(words, &wanted, sizeof(words));
      int64_t any = 0;
      for (const int64_t word : words) any |= word;
      if (any == 0) continue;
    }
    for (size_t id = i; id < end; ++id) {
      ids[found] = static_cast<int32_t>(id);
      found += bins[id] >= first && bins[id] <= last ? 1 : 0;
    }
  }
  return found;
}

[[gnu::always_inline]] inline void blocks_body(const VocabWeights& a, double* sums) {
  for (size_t first = 0; first < a.count; first += kVocabBlock) {
    FourDoubles sum = {};
    for (size_t i = first; i < first + kVocabBlock; i += kLanes) {
      const size_t left = i < a.count ? a.count - i : 0;
      const Floats value = load(a.values + i, left, kLowest);
      const Floats weight = weight_of(value, a.largest, a.temperature);
      FourFloats parts[kLanes / 4];
      std::memcpy(parts, &weight, sizeof(parts));
      for (const FourFloats& part : parts) sum += __builtin_convertvector(part, FourDoubles);
    }
    sums[first / kVocabBlock] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
}

[[gnu::always_inline]] inline VocabCounts count_body(const float* values, size_t count,
                                                     float value) {
  Ints above = {}, equal = {};
  for (size_t i = 0; i < count; i += kLanes) {
    const Floats loaded = load(values + i, count - i, kLowest);
    above -= loaded > value;
    equal -= loaded == value;
  }
  VocabCounts counts;
  for (size_t i = 0; i < kLanes; ++i) {
    counts.above += above[i];
    counts.equal += equal[i];
  }
  return counts;
}

[[gnu::always_inline]] inline void largest_body(const float* values, size_t count, float* largest) {
  for (size_t first = 0; first < count; first += kVocabBlock) {
    const size_t end = first + kVocabBlock < count ? first + kVocabBlock : count;
    Floats best = Floats{} + kLowest;
    for (size_t i = first; i < end; i += kLanes) {
      const Floats value = load(values + i, end - i, kLowest);
      best = value > best ? value : best;
    }
    float result = best[0];
    for (size_t i = 1; i < kLanes; ++i) result = best[i] > result ? best[i] : result;
    largest[first / kVocabBlock] = result;
  }
}

enum class Form : uint8_t { kPlain, kAvx2, kAvx512 };

Form best_form() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Form::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? Form::kAvx2 : Form::kPlain;
}

Form form = best_form();

template <auto kBody, typename... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] auto run_with_avx512(Args... args) {
  return kBody(args...);
}

template <auto kBody, typename... Args>
[[gnu::target("avx2")]] auto run_with_avx2(Args... args) {
  return kBody(args...);
}

// The same lines for this processor: kBody is always inlined, so it is compiled for its caller.
template <auto kBody, typename... Args>
auto run(Args... args) {
  if (form == Form::kAvx512) return run_with_avx512<kBody>(args...);
  return form == Form::kAvx2 ? run_with_avx2<kBody>(args...) : kBody(args...);
}

}  // namespace

void force_plain_vocab_passes(bool plain) { form = plain ? Form::kPlain : best_form(); }

VocabRange vocab_range(const float* values, size_t count) { return run<range_body>(values, count); }

int quantum_exponent(size_t count) { return static_cast<int>(std::bit_width(count)) - 53; }

double weigh_vocab(const VocabWeights& args) { return run<weigh_body>(args); }

double sum_from(const float* values, const float* weights, size_t count, float limit) {
  return run<sum_from_body>(values, weights, count, limit);
}

void spread_blocks(const float* values, size_t count, float largest, BlockSpread* blocks) {
  run<spread_body>(values, count, largest, blocks);
}

void sum_weighed_blocks(const float* values, const float* weights, size_t count, float largest,
                        double* sums) {
  run<weighed_blocks_body>(values, weights, count, largest, sums);
}

void measure_nearness(const VocabNearness& args, float* nearness) {
  run<nearness_body>(args, nearness);
}

float nearness_of_vocab(float value, float largest, float centre) {
  const float distance = (value - largest) - centre;
  return distance < 0.0f ? distance : -distance;
}

VocabRun sum_near(const VocabNearness& args, float least, const float* weights) {
  return run<near_body>(args, least, weights);
}

void drop_after(const float* values, size_t count, float value, int32_t last, float* weights) {
  run<drop_body>(values, count, value, last, weights);
}

void bin_vocab(const VocabBins& args) { run<bin_body>(args); }

size_t gather_bins(const uint16_t* bins, size_t count, uint16_t first, uint16_t last,
                   int32_t* ids) {
  return run<gather_bins_body>(bins, count, first, last, ids);
}

size_t gather_heavy(const float* weights, size_t count, float limit, int32_t* ids, size_t max_ids) {
  return run<gather_body>(weights, count, limit, ids, max_ids);
}

float exp_of_vocab(float value, float largest, float temperature) {
  const float x = (value - largest) / temperature;
  return exp_of<float, int32_t>(x < -1000.0f ? -1000.0f : x);
}

float weigh_one(float value, float largest, float temperature, size_t count) {
  const float limit = std::ldexp(1.0f, quantum_exponent(count) + 23);
  const float rounder = 1.5f * limit;
  const float weight = exp_of_vocab(value, largest, temperature);
  return weight < limit ? (weight + rounder) - rounder : weight;
}

void sum_vocab_blocks(const VocabWeights& args, double* sums) { run<blocks_body>(args, sums); }

VocabCounts count_vocab(const float* values, size_t count, float value) {
  return run<count_body>(values, count, value);
}

void block_largest(const float* values, size_t count, float* largest) {
  run<largest_body>(values, count, largest);
}

}  // namespace headrace
