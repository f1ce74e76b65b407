#include "engine/vocab_passes.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/numeric.h"
#include "engine/vocab_vectors.h"

namespace headrace {
namespace {

using namespace vocab;

constexpr size_t kSampleSize = 2048;
constexpr size_t kRun = 64;  // as many are looked at together when few of many are wanted

// Of the values of each lane.
struct LaneRange {
  Floats largest = Floats{} + kLowest, smallest = Floats{} - kLowest;
  Ints magnitude = {};  // the largest, as bits

  [[gnu::always_inline]] void add(const Floats& value) {
    Ints bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bits &= 0x7FFFFFFF;
    magnitude = bits > magnitude ? bits : magnitude;
    largest = value > largest ? value : largest;
    const Floats counted = value == kLowest ? Floats{} - kLowest : value;
    smallest = counted < smallest ? counted : smallest;
  }
};

[[gnu::always_inline]] inline void add_range(const LaneRange& lanes, VocabRange* range) {
  for (size_t i = 0; i < kLanes; ++i) {
    range->largest = lanes.largest[i] > range->largest ? lanes.largest[i] : range->largest;
    range->smallest = lanes.smallest[i] < range->smallest ? lanes.smallest[i] : range->smallest;
    range->finite = range->finite && lanes.magnitude[i] < 0x7F800000;
  }
}

[[gnu::always_inline]] inline VocabRange range_body(const float* values, size_t count) {
  LaneRange some, others;
  const float first = values[0];
  size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    some.add(load(values + i, kLanes, first));
    others.add(load(values + i + kLanes, kLanes, first));
  }
  each_vector(i, count, [&](size_t at, size_t left) __attribute__((always_inline)) {
    some.add(load(values + at, left, first));
  });
  VocabRange range{kLowest, -kLowest, true};
  add_range(some, &range);
  add_range(others, &range);
  return range;
}

template <bool kDivides, typename F>
[[gnu::always_inline]] inline F scaled(const F& value, float largest, float temperature) {
  const F below = value - largest;
  return kDivides ? below / temperature : below;
}

struct Rounding {
  // Weights below the limit are rounded by adding a number whose last bit is the quantum; those
  // above it are multiples already.
  float limit = 0, rounder = 0;
  explicit Rounding(size_t vocab_size)
      : limit(std::ldexp(1.0f, quantum_exponent(vocab_size) + 23)), rounder(1.5f * limit) {}
};

// below: scaled() of the value.
template <size_t kWide, typename F, typename Beside = Nothing>
[[gnu::always_inline]] inline F weight_of(const VocabWeights& a, const Rounding& rounding,
                                          const F& value, const F& below,
                                          const Beside& beside = {}) {
  // Below exp(-87) all are rounded to 0.
  const F weight = bounded_exp_of<F, typename Wide<kWide>::Ints>(below, beside);
  const F rounded =
      weight < rounding.limit ? (weight + rounding.rounder) - rounding.rounder : weight;
  return value < a.lowest ? F{} : rounded;
}

template <bool kDivides, size_t kWide>
[[gnu::always_inline]] inline void weigh_some(const VocabWeights& a, const Rounding& rounding,
                                              const float* values, float* weights, Doubles* sum) {
  typename Wide<kWide>::Floats value;
  std::memcpy(&value, values, sizeof(value));
  const auto below = scaled<kDivides>(value, a.largest, a.temperature);
  const auto weight = weight_of<kWide>(a, rounding, value, below);
  std::memcpy(weights, &weight, sizeof(weight));
  if (sum == nullptr) return;
  Floats parts[kWide / kLanes];
  std::memcpy(parts, &weight, sizeof(parts));
  for (const Floats& part : parts) *sum += __builtin_convertvector(part, Doubles);
}

template <bool kDivides, bool kSums, size_t kWide>
[[gnu::always_inline]] inline double weigh_all(const VocabWeights& a) {
  const Rounding rounding(a.vocab_size);
  Doubles sum = {};
  Doubles* const to = kSums ? &sum : nullptr;
  size_t i = 0;
  for (; i + kWide <= a.count; i += kWide) {
    weigh_some<kDivides, kWide>(a, rounding, a.values + i, a.weights + i, to);
  }
  if (i == a.count) return sum_of(sum);
  float rest[kWide];
  for (size_t k = 0; k < kWide; ++k) rest[k] = i + k < a.count ? a.values[i + k] : kLowest;
  weigh_some<kDivides, kWide>(a, rounding, rest, rest, to);
  std::memcpy(a.weights + i, rest, (a.count - i) * sizeof(float));
  return sum_of(sum);
}

// Dividing by 1 changes no bit.
template <bool kSums, size_t kWide>
[[gnu::always_inline]] inline double weigh_body(const VocabWeights& a) {
  return a.temperature == 1 ? weigh_all<false, kSums, kWide>(a) : weigh_all<true, kSums, kWide>(a);
}

template <bool kAll>
[[gnu::always_inline]] inline void spread_body(const VocabSpreads& a, VocabSpread* chunks) {
  for (size_t first = 0; first < a.count; first += kVocabChunk) {
    Ints number = {};
    Doubles sum = {}, squares = {};
    const size_t end = first + kVocabChunk < a.count ? first + kVocabChunk : a.count;
    each_vector(first, end, [&](size_t i, size_t left) __attribute__((always_inline)) {
      Floats below = load(a.values + i, left, kAll ? a.largest : kLowest) - a.largest;
      if constexpr (!kAll) {
        const Ints counted = below > -kFarBelow;
        number -= counted;
        below = counted ? below : Floats{};
      }
      const Doubles wide = __builtin_convertvector(below, Doubles);
      sum += wide;
      squares += wide * wide;
    });
    const double total =
        kAll ? static_cast<double>(end - first) : sum_of(__builtin_convertvector(number, Doubles));
    chunks[first / kVocabChunk] = {total, sum_of(sum), sum_of(squares)};
  }
}

[[gnu::always_inline]] inline void weighed_body(const VocabSums& a, double* sums) {
  for (size_t first = 0; first < a.count; first += kVocabChunk) {
    Doubles sum = {};
    const size_t end = first + kVocabChunk < a.count ? first + kVocabChunk : a.count;
    each_vector(first, end, [&](size_t i, size_t left) __attribute__((always_inline)) {
      const Floats value = load(a.values + i, left, a.largest);
      const Floats below = value >= a.lowest ? value - a.largest : Floats{};
      sum += load_wide(a.weights + i, left) * __builtin_convertvector(below, Doubles);
    });
    sums[first / kVocabChunk] = sum_of(sum);
  }
}

// body(sixteen values) of about kSampleSize of them, from everywhere in the row.
template <typename Body>
[[gnu::always_inline]] inline void each_sampled(const float* values, size_t count,
                                                const Body& body) {
  const size_t stride = count / (kSampleSize / kLanes * kLanes) * kLanes;
  for (size_t i = 0; i < count; i += stride < kLanes ? kLanes : stride) {
    body(load(values + i, count - i, kLowest));
  }
}

[[gnu::always_inline]] inline float share_body(const float* values, size_t count, float least) {
  Ints counted = {}, all = {};
  each_sampled(values, count, [&](const Floats& some) __attribute__((always_inline)) {
    counted -= some >= least;
    all += 1;
  });
  int32_t sum = 0;
  for (size_t i = 0; i < kLanes; ++i) sum += counted[i];
  return static_cast<float>(sum) / static_cast<float>(all[0] * static_cast<int32_t>(kLanes));
}

[[gnu::always_inline]] inline VocabRange usual_body(const float* values, size_t count) {
  LaneRange lanes;
  each_sampled(values, count,
               [&](const Floats& some) __attribute__((always_inline)) { lanes.add(some); });
  // A bias that takes some tokens far away is seen by some lanes only.
  float largest[kLanes], smallest[kLanes];
  std::memcpy(largest, &lanes.largest, sizeof(largest));
  std::memcpy(smallest, &lanes.smallest, sizeof(smallest));
  std::sort(largest, largest + kLanes);
  std::sort(smallest, smallest + kLanes);
  return {largest[kLanes - 2], smallest[kLanes / 2], smallest[kLanes - 1] < -kLowest};
}

// Weights and counts in one: the weight in quanta below bit `shift`, tokens counted above it. There
// is room for 2^(64 - shift) tokens of weight 1.
struct Packing {
  double base = 0;  // adding it leaves the weight in quanta in the lowest bits
  int64_t offset = 0;
  int shift = 0;
  explicit Packing(size_t vocab_size) {
    const int exponent = quantum_exponent(vocab_size);
    shift = 64 - (64 + exponent) / 2;
    base = std::ldexp(1.0, exponent + 52);
    offset = (int64_t{1} << shift) - std::bit_cast<int64_t>(base);
  }
  size_t capacity() const { return (size_t{1} << (64 - shift)) - 1; }  // a small row fits always
};

constexpr size_t kBatch = 256;  // so many stay in the first cache between two loops
constexpr size_t kCopies = 4;   // neighbours count in different copies: no waiting for stores
using PackedSums = std::array<uint64_t, kCopies * kVocabSteps>;

[[gnu::always_inline]] inline void add_some(const uint8_t* steps, const int64_t* packed,
                                            size_t count, PackedSums* sums) {
  uint64_t* at = sums->data();
  const auto add = [&](size_t copy, size_t i) {
    at[copy * kVocabSteps + steps[i]] += static_cast<uint64_t>(packed[i]);
  };
  size_t i = 0;
  for (; i + kCopies <= count; i += kCopies) {
    add(0, i);
    add(1, i + 1);
    add(2, i + 2);
    add(3, i + 3);
  }
  for (; i < count; ++i) add(0, i);
}

// Not inlined: what is stored here and there must not become code that picks vectors to pieces.
[[gnu::noinline]] void add_packed(const uint8_t* steps, const int64_t* packed, size_t count,
                                  PackedSums* sums) {
  add_some(steps, packed, count, sums);
}

void unpack(const PackedSums& packed, const Packing& packing, double quantum, StepSums* sums) {
  const uint64_t mask = (uint64_t{1} << packing.shift) - 1;
  for (size_t i = 0; i < packed.size(); ++i) {
    sums->weights[i % kVocabSteps] += static_cast<double>(packed[i] & mask) * quantum;
    sums->counts[i % kVocabSteps] += static_cast<uint32_t>(packed[i] >> packing.shift);
  }
}

[[gnu::always_inline]] inline Bytes steps_of(float highest, float scale, const Floats& value) {
  const Floats last = Floats{} + static_cast<float>(kVocabSteps - 1);
  const Floats step = (highest - value) * scale;
  const Floats bounded = step < last ? step : last;
  const Floats whole = bounded > 0.0f ? bounded : Floats{};
  return __builtin_convertvector(__builtin_convertvector(whole, Ints), Bytes);
}

[[gnu::always_inline]] inline void pack(const Packing& packing, const Doubles& weights,
                                        int64_t* packed) {
  const Doubles rounded = weights + packing.base;
  Longs words;
  std::memcpy(&words, &rounded, sizeof(words));
  words += packing.offset;
  std::memcpy(packed, &words, sizeof(words));
}

[[gnu::always_inline]] inline void add_steps(const VocabSteps& a, const Packing& packing,
                                             size_t first, size_t end, PackedSums* sums) {
  const float highest = a.highest, scale = static_cast<float>(kVocabSteps) / a.span;
  int64_t packed[kBatch];
  for (size_t batch = first; batch < end; batch += kBatch) {
    const size_t size = batch + kBatch < end ? kBatch : end - batch;
    const float *values = a.values + batch, *weights = a.weights + batch;
    uint8_t* to = a.steps + batch;
    each_vector(0, size,
                [&, values, weights, to](size_t i, size_t left) __attribute__((always_inline)) {
                  const Bytes steps = steps_of(highest, scale, load(values + i, left, kLowest));
                  std::memcpy(to + i, &steps, left);
                  pack(packing, load_wide(weights + i, left), packed + i);
                });
    add_packed(to, packed, size, sums);
  }
}

// What the steps of a row and what its weights are made with.
struct Stepping {
  const VocabWeights& weights;
  const VocabSteps& steps;
  const Packing& packing;
  Rounding rounding{weights.vocab_size};
  float scale = static_cast<float>(kVocabSteps) / steps.span;
};

// Weighs values from the first on and packs them; below: scaled() of them.
template <size_t kWide, typename F, typename Beside>
[[gnu::always_inline]] inline void weigh_and_pack(const Stepping& s, size_t first, const F& value,
                                                  const F& below, int64_t* packed,
                                                  const Beside& beside) {
  const F weight = weight_of<kWide>(s.weights, s.rounding, value, below, beside);
  std::memcpy(s.weights.weights + first, &weight, sizeof(weight));
  Floats values[kWide / kLanes], weights[kWide / kLanes];
  std::memcpy(values, &value, sizeof(values));
  std::memcpy(weights, &weight, sizeof(weights));
  for (size_t part = 0; part < kWide / kLanes; ++part) {
    const Bytes steps = steps_of(s.steps.highest, s.scale, values[part]);
    std::memcpy(s.steps.steps + first + part * kLanes, &steps, sizeof(steps));
    pack(s.packing, __builtin_convertvector(weights[part], Doubles), packed + part * kLanes);
  }
}

// A batch from `first` on; its values end before `end`. Divisions are begun one vector ahead, for
// they take longest.
template <bool kDivides, size_t kWide, typename Beside>
[[gnu::always_inline]] inline void weigh_batch(const Stepping& s, size_t first, size_t end,
                                               int64_t* packed, const Beside& beside) {
  using F = typename Wide<kWide>::Floats;
  const VocabWeights& w = s.weights;
  F next;
  std::memcpy(&next, w.values + first, sizeof(next));
  F next_below = scaled<kDivides>(next, w.largest, w.temperature);
  for (size_t i = 0; i < kBatch; i += kWide) {
    const F value = next, below = next_below;
    std::memcpy(&next, w.values + std::min(first + i + kWide, end - kWide), sizeof(next));
    next_below = scaled<kDivides>(next, w.largest, w.temperature);
    weigh_and_pack<kWide>(s, first + i, value, below, packed + i, beside);
  }
}

// Weights are made of one batch while those of the batch before are added: arithmetic beside loads
// and stores.
template <bool kDivides, size_t kWide>
[[gnu::always_inline]] inline void add_weighed(const VocabWeights& w, const VocabSteps& a,
                                               const Packing& packing, size_t first, size_t end,
                                               PackedSums* sums) {
  const Stepping stepping{w, a, packing};
  int64_t packed[2][kBatch];
  int64_t *now = packed[0], *before = packed[1];
  size_t batch = first;
  const auto weigh = [&](const auto& beside) __attribute__((always_inline)) {
    weigh_batch<kDivides, kWide>(stepping, batch, end, now, beside);
    std::swap(now, before);
    batch += kBatch;
  };
  if (batch + kBatch <= end) weigh(Nothing());
  while (batch + kBatch <= end) {
    const uint8_t* steps = a.steps + batch - kBatch;
    const int64_t* words = before;
    weigh([&]() __attribute__((always_inline)) {
      add_some(steps, words, kWide / kBeside, sums);
      steps += kWide / kBeside;
      words += kWide / kBeside;
    });
  }
  if (batch > first) add_packed(a.steps + batch - kBatch, before, kBatch, sums);
  weigh_all<kDivides, false, kWide>(w.part(batch, end));
  add_steps(a, packing, batch, end, sums);
}

// each(first, end, packed) of so many as each copy has room for its share of.
template <typename Each>
[[gnu::always_inline]] inline void each_packed(const VocabSteps& a, StepSums* sums,
                                               const Packing& packing, const Each& each) {
  const double quantum = std::ldexp(1.0, quantum_exponent(a.vocab_size));
  const size_t most = std::max<size_t>(packing.capacity() / (kBatch / kCopies), 1) * kBatch;
  for (size_t first = 0; first < a.count; first += most) {
    PackedSums packed = {};
    each(first, first + most < a.count ? first + most : a.count, &packed);
    unpack(packed, packing, quantum, sums);
  }
}

[[gnu::always_inline]] inline void steps_body(const VocabSteps& a, StepSums* sums) {
  const Packing packing(a.vocab_size);
  each_packed(a, sums, packing,
              [&](size_t first, size_t end, PackedSums* packed)
                  __attribute__((always_inline)) { add_steps(a, packing, first, end, packed); });
}

template <size_t kWide>
[[gnu::always_inline]] inline void weighed_steps_body(const VocabWeights& w, const VocabSteps& a,
                                                      StepSums* sums) {
  const Packing packing(a.vocab_size);
  each_packed(a, sums, packing,
              [&](size_t first, size_t end, PackedSums* packed) __attribute__((always_inline)) {
                if (w.temperature == 1) {
                  return add_weighed<false, kWide>(w, a, packing, first, end, packed);
                }
                add_weighed<true, kWide>(w, a, packing, first, end, packed);
              });
}

// A bit for each byte that is all ones, not all zeros.
[[gnu::always_inline]] inline uint64_t bits_of(const Bytes& lanes) {
  __m128i bytes;
  std::memcpy(&bytes, &lanes, sizeof(bytes));
  return static_cast<uint32_t>(_mm_movemask_epi8(bytes));
}

// Appends the lanes whose bits are set as ids from `first` on. One of a run is written without a
// branch, which could not be foreseen.
[[gnu::always_inline]] inline size_t append(uint64_t bits, size_t first, int32_t* ids,
                                            size_t found) {
  constexpr uint64_t kSome = uint64_t{1} << (kRun - 1);  // of none there is no first bit
  int32_t* to = ids + found;
  *to = static_cast<int32_t>(first + static_cast<size_t>(std::countr_zero(bits | kSome)));
  found += static_cast<size_t>(std::popcount(bits));
  for (bits &= bits - 1; bits != 0; bits &= bits - 1) {
    *++to = static_cast<int32_t>(first + static_cast<size_t>(std::countr_zero(bits)));
  }
  return found;
}

[[gnu::always_inline]] inline size_t gather_body(const float* weights, size_t count, float limit,
                                                 int32_t* ids, size_t max_ids) {
  size_t found = 0, i = 0;
  for (; i + kRun <= count && found <= max_ids; i += kRun) {
    uint64_t bits = 0;
    for (size_t part = 0; part < kRun; part += kLanes) {
      const Ints heavy = load(weights + i + part, kLanes, 0) >= limit;
      bits |= bits_of(__builtin_convertvector(heavy, Bytes)) << part;
    }
    found = append(bits, i, ids, found);
  }
  for (; i < count && found <= max_ids; ++i) {
    ids[found] = static_cast<int32_t>(i);
    found += weights[i] >= limit ? 1 : 0;
  }
  return found;
}

// The last ones, fewer than kRun, from `i` on.
size_t gather_last_steps(const uint8_t* steps, size_t i, size_t count, const StepRuns& runs,
                         int32_t* ids, size_t found) {
  for (; i < count; ++i) {
    const bool in_one = steps[i] >= runs.first && steps[i] <= runs.last;
    const bool in_other = steps[i] >= runs.other_first && steps[i] <= runs.other_last;
    ids[found] = static_cast<int32_t>(i);
    found += in_one || in_other ? 1 : 0;
  }
  return found;
}

[[gnu::always_inline]] inline size_t gather_steps_body(const uint8_t* steps, size_t count,
                                                       const StepRuns& runs, int32_t* ids) {
  const Bytes first = Bytes{} + runs.first, other_first = Bytes{} + runs.other_first;
  const Bytes width = Bytes{} + static_cast<uint8_t>(runs.last - runs.first);
  const Bytes other_width = Bytes{} + static_cast<uint8_t>(runs.other_last - runs.other_first);
  size_t found = 0, i = 0;
  for (; i + kRun <= count; i += kRun) {
    uint64_t bits = 0;
    for (size_t part = 0; part < kRun; part += kLanes) {
      Bytes some;
      std::memcpy(&some, steps + i + part, sizeof(some));
      const auto wanted = (some - first <= width) | (some - other_first <= other_width);
      bits |= bits_of(__builtin_convertvector(wanted, Bytes)) << part;
    }
    found = append(bits, i, ids, found);
  }
  return gather_last_steps(steps, i, count, runs, ids, found);
}

// Compilers do not see that 64 comparisons make one word of bits. kTwo: the runs differ.
template <bool kTwo>
[[gnu::target("avx512f,avx512bw,popcnt")]] size_t gather_steps_with_avx512(const uint8_t* steps,
                                                                           size_t count,
                                                                           const StepRuns& runs,
                                                                           int32_t* ids) {
  const auto all = [](int step) { return static_cast<char>(step); };
  const __m512i first = _mm512_set1_epi8(all(runs.first));
  const __m512i width = _mm512_set1_epi8(all(runs.last - runs.first));
  const __m512i other_first = _mm512_set1_epi8(all(runs.other_first));
  const __m512i other_width = _mm512_set1_epi8(all(runs.other_last - runs.other_first));
  size_t found = 0, i = 0;
  for (; i + kRun <= count; i += kRun) {
    const __m512i some = _mm512_loadu_si512(steps + i);
    uint64_t bits = _mm512_cmple_epu8_mask(_mm512_sub_epi8(some, first), width);
    if constexpr (kTwo) {
      bits |= _mm512_cmple_epu8_mask(_mm512_sub_epi8(some, other_first), other_width);
    }
    found = append(bits, i, ids, found);
  }
  return gather_last_steps(steps, i, count, runs, ids, found);
}

// Blocks are added up in this order whatever processor it is.
[[gnu::always_inline]] inline double sum_block(const float* weights) {
  FourDoubles sum = {};
  for (size_t i = 0; i < kVocabBlock; i += 4) {
    FourFloats part;
    std::memcpy(&part, weights + i, sizeof(part));
    sum += __builtin_convertvector(part, FourDoubles);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <bool kDivides, size_t kWide>
[[gnu::always_inline]] inline void sum_blocks(const VocabWeights& a, double* sums) {
  using F = typename Wide<kWide>::Floats;
  for (size_t first = 0; first < a.count; first += kVocabBlock) {
    float block[kVocabBlock];
    const float* values = a.values + first;
    if (first + kVocabBlock > a.count) {
      for (size_t i = 0; i < kVocabBlock; ++i) block[i] = first + i < a.count ? values[i] : kLowest;
      values = block;
    }
    for (size_t i = 0; i < kVocabBlock; i += kWide) {
      F value;
      std::memcpy(&value, values + i, sizeof(value));
      const F weight =
          exp_of<F, typename Wide<kWide>::Ints>(scaled<kDivides>(value, a.largest, a.temperature));
      std::memcpy(block + i, &weight, sizeof(weight));
    }
    sums[first / kVocabBlock] = sum_block(block);
  }
}

template <size_t kWide>
[[gnu::always_inline]] inline void blocks_body(const VocabWeights& a, double* sums) {
  a.temperature == 1 ? sum_blocks<false, kWide>(a, sums) : sum_blocks<true, kWide>(a, sums);
}

[[gnu::always_inline]] inline VocabRange mask_body(const uint64_t* mask, size_t count,
                                                   float* values) {
  Ints bit;
  for (size_t i = 0; i < kLanes; ++i) bit[i] = 1 << i;
  LaneRange lanes;
  each_vector(0, count, [&](size_t i, size_t left) __attribute__((always_inline)) {
    const auto bits = static_cast<int32_t>(mask[i / 64] >> (i % 64) & 0xFFFF);
    const Floats value = load(values + i, left, kLowest);
    const Floats allowed = (bit & bits) != 0 ? value : Floats{} + kLowest;
    lanes.add(allowed);
    store(allowed, left, values + i);
  });
  VocabRange range{kLowest, -kLowest, true};
  add_range(lanes, &range);
  return range;
}

[[gnu::always_inline]] inline VocabCounts count_body(const float* values, size_t count,
                                                     float value) {
  Ints above = {}, equal = {};
  each_vector(0, count, [&](size_t i, size_t left) __attribute__((always_inline)) {
    const Floats loaded = load(values + i, left, kLowest);
    above -= loaded > value;
    equal -= loaded == value;
  });
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
    each_vector(first, end, [&](size_t i, size_t left) __attribute__((always_inline)) {
      const Floats value = load(values + i, left, kLowest);
      best = value > best ? value : best;
    });
    float result = best[0];
    for (size_t i = 1; i < kLanes; ++i) result = best[i] > result ? best[i] : result;
    largest[first / kVocabBlock] = result;
  }
}

using Form = VocabForm;

Form best_form() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Form::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? Form::kAvx2 : Form::kPlain;
}

Form form = best_form();

template <auto kBody, typename... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")]] auto run_with_avx512(Args... args) {
  return kBody(args...);
}

template <auto kBody, typename... Args>
[[gnu::target("avx2,popcnt")]] auto run_with_avx2(Args... args) {
  return kBody(args...);
}

// The same lines for this processor: kBody is always inlined, so it is compiled for its caller.
// kWideBody: the same with more vectors at a time, for processors that have registers for them.
template <auto kBody, auto kWideBody = kBody, typename... Args>
auto run(Args... args) {
  if (form == Form::kAvx512) return run_with_avx512<kWideBody>(args...);
  return form == Form::kAvx2 ? run_with_avx2<kBody>(args...) : kBody(args...);
}

}  // namespace

void limit_vocab_form(VocabForm most) { form = std::min(most, best_form()); }

VocabRange vocab_range(const float* values, size_t count) { return run<range_body>(values, count); }

int quantum_exponent(size_t count) { return static_cast<int>(std::bit_width(count)) - 53; }

double weigh_vocab(const VocabWeights& args) {
  if (args.sums) return run<weigh_body<true, kLanes>, weigh_body<true, 4 * kLanes>>(args);
  return run<weigh_body<false, kLanes>, weigh_body<false, 4 * kLanes>>(args);
}

void spread_vocab(const VocabSpreads& args, VocabSpread* chunks) {
  if (args.all_near) return run<spread_body<true>>(args, chunks);
  run<spread_body<false>>(args, chunks);
}

void sum_weighed(const VocabSums& args, double* sums) { run<weighed_body>(args, sums); }

VocabRange usual_range(const float* values, size_t count) { return run<usual_body>(values, count); }

float usual_share(const float* values, size_t count, float least) {
  return run<share_body>(values, count, least);
}

void step_vocab(const VocabSteps& args, StepSums* sums) { run<steps_body>(args, sums); }

void weigh_and_step_vocab(const VocabWeights& weights, const VocabSteps& steps, StepSums* sums) {
  run<weighed_steps_body<kLanes>, weighed_steps_body<4 * kLanes>>(weights, steps, sums);
}

size_t gather_steps(const uint8_t* steps, size_t count, const StepRuns& runs, int32_t* ids) {
  const bool two = runs.first != runs.other_first || runs.last != runs.other_last;
  if (form == Form::kAvx512) {
    return two ? gather_steps_with_avx512<true>(steps, count, runs, ids)
               : gather_steps_with_avx512<false>(steps, count, runs, ids);
  }
  return form == Form::kAvx2 ? run_with_avx2<gather_steps_body>(steps, count, runs, ids)
                             : gather_steps_body(steps, count, runs, ids);
}

VocabRange mask_vocab(const uint64_t* mask, size_t count, float* values) {
  return run<mask_body>(mask, count, values);
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

void sum_vocab_blocks(const VocabWeights& args, double* sums) {
  run<blocks_body<kLanes>, blocks_body<4 * kLanes>>(args, sums);
}

VocabCounts count_vocab(const float* values, size_t count, float value) {
  return run<count_body>(values, count, value);
}

void block_largest(const float* values, size_t count, float* largest) {
  run<largest_body>(values, count, largest);
}

}  // namespace headrace
