// Attention over int16 keys and values in tiles (generic/attention_whole.h), 16 rows at a time.
//
// A group of rows lies along the lanes of vectors. Its scores are products of keys [16 positions]
// with queries, its sums products of values [16 dimensions] with weights, so a row of a tile of
// sums is one position, or one dimension, of all 16 rows: softmax folds nothing across lanes, and
// whatever belongs to a row is one vector for all. Keys and values lie otherwise in their blocks,
// words of four bytes along the other side, so those of a step are transposed, once for all groups;
// queries once for all steps, weights as they are made.
//
// All is in the order that kernels.h gives, so the bits are those of vectors (VectorProducts).
// Hidden positions are left out of a total, to which vectors add 2^-126 for each: nothing beside
// the weight 1 of the row's largest score.
#pragma once

#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/generic/attention_whole.h"
#include "backend/cpu/kernels/generic/lanes_avx512_vnni.h"

namespace headrace::cpu {
namespace {

// Fewer rows than half a tile go by vectors: they take a tile's time for less than its work.
inline constexpr int64_t kMinAttentionTileRows = 8;

static_assert(kKvBlock == kTileRows && kKvStep == kTileRowBytes && kAttentionRows % kTileRows == 0);

// Word w of line(i) to word i of line w of 16, `stride` bytes apart; all are read first.
template <typename Line>
[[gnu::always_inline]] inline void store_transposed(const Line& line, uint8_t* to, int64_t stride) {
  using F = Avx512Vnni;
  F::I words[kTileRows];
  for (int i = 0; i < kTileRows; ++i) words[i] = line(i);
  F::transpose_words(words);
  for (int i = 0; i < kTileRows; ++i) F::store_words(to + i * stride, words[i]);
}

// A tile of attention whose rows are kept in whole groups: those beyond the last are copies of it
// without queries. `acc` is [groups][dims][16 rows], `totals` [groups][16][16 rows] until the end
// of a split.
struct GroupedTile : WholeTile<Avx512Vnni> {
  using F = Avx512Vnni;

  int padded_rows;
  uint8_t* group_weights;   // operands of a group: high bytes of 64 positions, low ones
  uint8_t* sums;            // 4 tiles
  uint8_t* key_operands;    // of a step: [block][64 dimensions][high, low]
  uint8_t* value_operands;  // of a step: [16 dimensions][high, low], in place of expanded values
  alignas(64) float slopes[kAttentionRows];

  static constexpr int64_t kSums = 4;
  static int64_t padded(int64_t rows) { return (rows + kTileRows - 1) / kTileRows * kTileRows; }

  explicit GroupedTile(const AttentionRowsArgs& a)
      : WholeTile(a, padded(a.num_rows)),
        padded_rows(static_cast<int>(padded(a.num_rows))),
        group_weights(free_bytes),
        sums(group_weights + 2 * kTileBytes),
        key_operands(sums + kSums * kTileBytes),
        value_operands(reinterpret_cast<uint8_t*>(kv)) {
    for (int r = 0; r < padded_rows; ++r) {
      lowest[r] = lowest[smaller(r, rows - 1)];
      end[r] = end[smaller(r, rows - 1)];
      slopes[r] = r < rows ? slope_of(r) : 0.0f;
    }
  }

  int64_t chunks() const { return query_bytes / kTileRowBytes; }

  // As operands: where 64 dimensions of 16 rows were, word w of row r is word r of row w.
  void load_queries(float factor) {
    WholeTile::load_queries(factor);
    const int64_t row_bytes = 2 * query_bytes;
    __builtin_memset(queries + rows * row_bytes, 0,
                     static_cast<size_t>((padded_rows - rows) * row_bytes));
    for (int r = rows; r < padded_rows; ++r) query_unit[r] = 0.0f;
    for (int first = 0; first < padded_rows; first += kTileRows) {
      uint8_t* group = queries + first * row_bytes;
      for (int64_t at = 0; at < row_bytes; at += kTileRowBytes) {
        const auto row = [&](int i) { return F::load_words(group + i * row_bytes + at); };
        store_transposed(row, group + at, row_bytes);
      }
    }
  }
};

static_assert(whole_scratch_fits([](int64_t dims) {
  return (2 + GroupedTile::kSums) * kTileBytes + whole_query_bytes(dims) * 2 * kKvStep;
}));

// kCapped: scores have a soft cap. kOneChunk: heads have no more than 64 dimensions.
template <bool kCapped, bool kOneChunk, typename Tiles>
struct GroupedStep {
  using Tile = GroupedTile;
  using F = Avx512Vnni;
  using V = typename F::V;
  using I = typename F::I;
  static constexpr bool kIsCapped = kCapped;

  // The rows of a step's group as lanes, and the blocks of the step that they see.
  struct Group {
    int first;
    int64_t begin, limit;
    bool is_plain;  // each row sees all of the step, scores have no slope
    // Unless plain:
    V step_begin, step_end;  // visible part of the step
    V distance;              // of the step's first position from the rows' own
    V shift;                 // what weights lie below
    V correction;
  };

  Tile& t;

  // All are whole: sums 0 to 3, keys or values 4 and 5, queries or weights 6 and 7.
  static constexpr TileConfig kWholeTiles = [] {
    TileConfig config{};
    for (int i = 0; i < kNumTiles; ++i) set_shape(&config, i, kTileRows, kTileRowBytes);
    return config;
  }();
  const TileScope<Tiles> scope{kWholeTiles};

  explicit GroupedStep(Tile& tile) : t(tile) {
    for (int r = t.rows; r < t.padded_rows; ++r) t.top[r] = -__builtin_inff();
    const auto rest = static_cast<size_t>(t.padded_rows - t.rows) * sizeof(float);
    __builtin_memset(t.acc + t.rows * t.dims, 0, rest * static_cast<size_t>(t.dims));
    __builtin_memset(t.totals + t.rows * 16, 0, rest * 16);
  }

  // ---- Operands of a step ----------------------------------------------------------------------

  // Of 16 positions: lines of 16 words along the dimensions, zeros beyond them.
  void transpose_keys(int64_t b) {
    const int64_t num_lines = t.dims / 4;
    for (int64_t tile = 0; tile < 2 * t.chunks(); ++tile) {
      const int64_t first = tile / 2 * kTileRows, low = tile % 2 * kTileRowBytes;
      const auto line = [&](int i) __attribute__((always_inline)) {
        const bool is_there = first + i < num_lines;
        if (!is_there) return F::zero_words();
        const int64_t at = (first + i) * kWholeLine + low;
        prefetch_line<F, KvDtype::kInt16>(t.next_keys[b] + at);
        return F::load_words(t.keys[b] + at);
      };
      uint8_t* to = t.key_operands + (b * 2 * t.chunks() + tile) * kTileBytes;
      store_transposed(line, to, kTileRowBytes);
    }
  }

  // Of 16 dimensions: words along the positions of the step. Blocks outside of [begin, limit),
  // whose positions have no weight, have words of others.
  void transpose_values(int64_t begin, int64_t limit) {
    const int64_t row_bytes = t.dims / 16 * kWholeLine;  // of four positions
    for (int64_t tile = 0; tile < t.dims / 16 * 2; ++tile) {
      const int64_t line = tile / 2 * kWholeLine + tile % 2 * kTileRowBytes;
      const auto words = [&](int i) __attribute__((always_inline)) {
        const int64_t b = larger(begin, smaller(i / 4, limit - 1));
        const int64_t at = i % 4 * row_bytes + line;
        prefetch_line<F, KvDtype::kInt16>(t.next_values[b] + at);
        return F::load_words(t.values[b] + at);
      };
      store_transposed(words, t.value_operands + tile * kTileBytes, kTileRowBytes);
    }
  }

  // ---- Scores ----------------------------------------------------------------------------------

  template <int kTile>
  [[gnu::always_inline]] static void load(const uint8_t* operand) {
    Tiles::template load<kTile>(operand, kTileRowBytes);
  }
  template <int kNumSums>
  [[gnu::always_inline]] static void zero() {
    unrolled<0, kNumSums>([](auto sum) { Tiles::template zero<sum.value>(); });
  }
  template <int kNumSums>
  [[gnu::always_inline]] void store() const {
    unrolled<0, kNumSums>([&](auto sum) {
      Tiles::template store<sum.value>(t.sums + sum.value * kTileBytes, kTileRowBytes);
    });
  }

  // Sums stay in their tiles until those before them were taken from memory: tiles multiply beside
  // vectors, and no store waits for products while loads wait for the store.

  // Products of high bytes, of low ones, and mixed ones: together where nothing waits for them, the
  // first done when the last begins; else, as more chunks would, in two tiles.
  static constexpr int kScoreSums = kOneChunk ? 3 : 4;
  [[gnu::always_inline]] void multiply_keys(const Group& group, int64_t b) const {
    const int64_t row_bytes = 2 * t.query_bytes;
    const uint8_t* queries = t.queries + group.first * row_bytes;
    const uint8_t* keys = t.key_operands + b * 2 * t.chunks() * kTileBytes;
    zero<kScoreSums>();
    for (int64_t chunk = 0; chunk < (kOneChunk ? 1 : t.chunks()); ++chunk, keys += 2 * kTileBytes) {
      load<4>(keys);
      if (b == group.begin || !kOneChunk) {
        Tiles::template load<6>(queries + chunk * kTileRowBytes, row_bytes);
        Tiles::template load<7>(queries + t.query_bytes + chunk * kTileRowBytes, row_bytes);
      }
      load<5>(keys + kTileBytes);
      Tiles::template product_ss<2, 4, 7>();
      Tiles::template product_ss<0, 4, 6>();
      Tiles::template product_ss<1, 5, 7>();
      Tiles::template product_ss<kScoreSums - 1, 5, 6>();
    }
  }

  // T of 256 high + mixed products.
  [[gnu::always_inline]] static I joined(I high, I mixed) {
    return F::add_words(F::template shift_left<8>(high), mixed);
  }

  // Products T of a row of a block's sums.
  [[gnu::always_inline]] static I products_of(const uint8_t* sums) {
    const I low = F::add_words(F::load_words(sums + kTileBytes), F::set_bits(128));
    I mixed = F::load_words(sums + 2 * kTileBytes);
    if constexpr (!kOneChunk) mixed = F::add_words(mixed, F::load_words(sums + 3 * kTileBytes));
    return F::add_words(joined(F::load_words(sums), mixed), F::template shift_right_signed<8>(low));
  }

  // Of positions that a row does not see `hidden`.
  [[gnu::always_inline]] static V visible(const Group& group, int64_t position, V value, V hidden) {
    const V at = F::set(static_cast<float>(position));
    value = F::select_less(at, group.step_begin, hidden, value);
    return F::select_less(at, group.step_end, value, hidden);
  }

  // Stores the scores of a block's positions; the largest of them and `highest`.
  template <bool kPlain>
  [[gnu::always_inline]] V take_scores(const Group& group, int64_t b, V highest) const {
    const V unit = F::load(t.query_unit + group.first), slope = F::load(t.slopes + group.first);
    const uint8_t* sums = t.sums;
    const float* key_scales = t.key_scales;
    float* to = t.scores + b * kKvBlock * kTileRows;
    for (int64_t i = 0; i < kKvBlock; ++i) {
      const int64_t position = b * kKvBlock + i;
      V score = F::mul(F::to_float(products_of(sums + i * kTileRowBytes)), unit);
      score = F::mul(score, F::set(key_scales[position]));
      if constexpr (kCapped) {
        score = F::mul(soft_cap<F>(score, t.args.softcap), F::set(kLog2E));
      }
      if constexpr (!kPlain) {
        const V at = F::set(static_cast<float>(position));
        score = F::fma(F::add(at, group.distance), slope, score);
        score = visible(group, position, score, F::set(-__builtin_inff()));
      }
      F::store(to + i * kTileRows, score);
      highest = F::max(highest, score);
    }
    return highest;
  }

  float* scores_at(int64_t position) const { return t.scores + position * kTileRows; }

  // Sets what the rows' weights and earlier sums are made less by; rows that see nothing keep all.
  template <bool kPlain>
  [[gnu::always_inline]] void raise_tops(Group* group, V step_top) const {
    const V top = F::load(t.top + group->first);
    const V highest = F::select_less(top, step_top, step_top, top);
    F::store(t.top + group->first, highest);
    V change = F::sub(top, highest);
    group->shift = highest;
    if constexpr (!kPlain) {
      change = F::select_less(group->step_begin, group->step_end, change, F::zero());
      group->shift = F::select_less(group->step_begin, group->step_end, highest, F::zero());
    }
    group->correction = exp2_lanes<F>(change);
  }

  // ---- Weights ---------------------------------------------------------------------------------

  // Scores as weights, times the scales of values; the bits of the largest: NaN where a scale is,
  // and none is below 0. Totals are of positions 16 apart.
  template <bool kPlain>
  [[gnu::always_inline]] I take_weights(const Group& group) const {
    I largest = F::zero_words();
    float *total = t.totals + group.first * 16, *scores = t.scores;
    const float* value_scales = t.value_scales;
    for (int lane = 0; lane < kKvBlock; ++lane, total += kTileRows) {
      V sum = F::zero();
      for (int64_t b = group.begin; b < group.limit; ++b) {
        const int64_t position = b * kKvBlock + lane;
        float* at = scores + position * kTileRows;
        V weight = exp2_lanes<F>(F::sub(F::load(at), group.shift));
        if constexpr (!kPlain) weight = visible(group, position, weight, F::zero());
        sum = F::add(sum, weight);
        weight = F::mul(weight, F::set(value_scales[position]));
        if constexpr (!kPlain) weight = visible(group, position, weight, F::zero());
        F::store(at, weight);
        largest = F::max_words(largest, F::as_words(weight));
      }
      F::store(total, F::fma(F::load(total), group.correction, sum));
    }
    return largest;
  }

  // The weights' units, and what makes whole numbers of them: whole_unit() of all rows.
  struct Units {
    V unit, factor;
  };
  [[gnu::always_inline]] static Units whole_units(V largest) {
    const V limit = F::set(kFixedActivationLimit), smallest = F::set(kSmallestFixedBound);
    const V infinite = F::set(__builtin_inff());
    const V unit =
        F::select_less(largest, infinite, F::div(largest, limit), F::set(__builtin_nanf("")));
    const V factor = F::select_less(largest, infinite, F::div(limit, largest), F::zero());
    return {F::select_less(largest, smallest, F::zero(), unit),
            F::select_less(largest, smallest, F::zero(), factor)};
  }

  // The bytes of whole numbers as operands: words of four positions.
  [[gnu::always_inline]] void store_weights(const Group& group, V factor) const {
    if (group.limit - group.begin < kStepBlocks) {
      __builtin_memset(t.group_weights, 0, static_cast<size_t>(2 * kTileBytes));
    }
    for (int64_t i = 4 * group.begin; i < 4 * group.limit; ++i) {
      const auto whole = [&](int64_t j) __attribute__((always_inline)) {
        return F::to_words(F::mul(F::load(scores_at(4 * i + j)), factor));
      };
      const I even = F::or_bits(whole(0), F::template shift_left<16>(whole(2)));
      const I odd = F::or_bits(whole(1), F::template shift_left<16>(whole(3)));
      uint8_t* to = t.group_weights + i * kTileRowBytes;
      F::store_words(to, F::upper_bytes(even, odd));
      F::store_words(to + kTileBytes, F::lower_bytes(even, odd));
    }
  }

  // ---- Values ----------------------------------------------------------------------------------

  // Tiles 2 kSum and 2 kSum + 1: products of high bytes, and mixed ones, of 16 dimensions.
  template <int kSum>
  [[gnu::always_inline]] static void multiply(const uint8_t* values) {
    load<4>(values);
    load<5>(values + kTileBytes);
    Tiles::template product_su<2 * kSum + 1, 4, 7>();
    Tiles::template product_su<2 * kSum, 4, 6>();  // between the two that wait for each other
    Tiles::template product_su<2 * kSum + 1, 5, 6>();
  }

  // Of two vectors, or of the last one.
  [[gnu::always_inline]] void multiply_values(int64_t vector) const {
    const uint8_t* values = t.value_operands + vector * 2 * kTileBytes;
    zero<4>();
    multiply<0>(values);
    if (vector + 1 < t.dims / 16) multiply<1>(values + 2 * kTileBytes);
  }

  // Adds the products of 16 dimensions to what the group has.
  [[gnu::always_inline]] void take_values(const Group& group, V unit, int64_t vector) const {
    const uint8_t* sums = t.sums + vector % 2 * 2 * kTileBytes;
    float* acc = t.acc + group.first * t.dims + vector * 16 * kTileRows;
    for (int d = 0; d < 16; ++d, acc += kTileRows, sums += kTileRowBytes) {
      const I products = joined(F::load_words(sums), F::load_words(sums + kTileBytes));
      const V kept = F::mul(F::load(acc), group.correction);
      F::store(acc, F::fma(F::to_float(products), unit, kept));
    }
  }

  // The first products of `next` come beside the last sums.
  [[gnu::always_inline]] void add_values(const Group& group, V unit, const Group& next) const {
    load<6>(t.group_weights);
    load<7>(t.group_weights + kTileBytes);
    const int64_t vectors = t.dims / 16;
    multiply_values(0);
    for (int64_t vector = 0; vector < vectors; vector += 2) {
      store<4>();
      if (vector + 2 < vectors) {
        multiply_values(vector + 2);
      } else if (next.first < t.padded_rows) {
        multiply_keys(next, next.begin);
      }
      take_values(group, unit, vector);
      if (vector + 1 < vectors) take_values(group, unit, vector + 1);
    }
  }

  // ---- Steps -----------------------------------------------------------------------------------

  // The products of the group's first block are in their tiles.
  template <bool kPlain>
  void run_group(Group group, const Group& next) const {
    V highest = F::set(-__builtin_inff());
    for (int64_t b = group.begin; b < group.limit; ++b) {
      store<kScoreSums>();
      if (b + 1 < group.limit) multiply_keys(group, b + 1);
      highest = take_scores<kPlain>(group, b, highest);
    }
    raise_tops<kPlain>(&group, highest);
    const Units by = whole_units(F::as_floats(take_weights<kPlain>(group)));
    store_weights(group, by.factor);
    add_values(group, F::mul(F::set(256.0f), by.unit), next);
  }

  void run_groups(int64_t step) const {
    Group group = visible_group(0, step);
    if (group.first < t.padded_rows) multiply_keys(group, group.begin);
    while (group.first < t.padded_rows) {
      const Group next = visible_group(group.first + kTileRows, step);
      group.is_plain ? run_group<true>(group, next) : run_group<false>(group, next);
      group = next;
    }
  }

  // The first group from row `first` on of which some row sees some of the step; none: its rows lie
  // beyond the last. Rows of a group see nearly the same: blocks that none sees are left out.
  Group visible_group(int first, int64_t step) const {
    Group group{};
    for (group.first = first; group.first < t.padded_rows; group.first += kTileRows) {
      const int last = group.first + kTileRows - 1;
      const int64_t begin = larger(t.lowest[group.first] - step, 0);
      const int64_t limit = smaller(t.end[last] - step, kKvStep);
      if (begin >= limit) continue;
      group.begin = begin / kKvBlock;
      group.limit = (limit - 1) / kKvBlock + 1;
      const bool all_seen = t.lowest[last] <= step && t.end[group.first] >= step + kKvStep;
      group.is_plain = all_seen && t.args.slopes == nullptr;
      if (!group.is_plain) find_visible(step, &group);
      break;
    }
    return group;
  }

  void find_visible(int64_t step, Group* group) const {
    alignas(64) float begins[kTileRows], ends[kTileRows], distances[kTileRows];
    for (int i = 0; i < kTileRows; ++i) {
      const int64_t row_end = t.end[group->first + i] - step;
      begins[i] = static_cast<float>(larger(t.lowest[group->first + i] - step, 0));
      ends[i] = static_cast<float>(larger(smaller(row_end, kKvStep), 0));
      distances[i] = static_cast<float>(1 - row_end);
    }
    group->step_begin = F::load(begins);
    group->step_end = F::load(ends);
    group->distance = F::load(distances);
  }

  void run(int64_t step) {
    const int64_t begin = larger(step, t.lowest[0]) / kKvBlock;
    const int64_t limit = (smaller(step + kKvStep, t.end[t.rows - 1]) - 1) / kKvBlock + 1;
    const int64_t first = step / kKvBlock;
    for (int64_t block = begin; block < limit; ++block) {
      t.find_planes(block, block - first);
      t.load_block_scales(block - first);
      transpose_keys(block - first);
    }
    transpose_values(begin - first, limit - first);
    run_groups(step);
  }

  // Sums and totals as those of rows.
  void finish() const {
    for (int first = 0; first < t.padded_rows; first += kTileRows) {
      to_rows(t.acc + first * t.dims, t.dims);
      to_rows(t.totals + first * 16, 16);
    }
  }

  // [width][16 rows] to [16 rows][width].
  void to_rows(float* group, int64_t width) const {
    float* rows = t.kv;
    for (int64_t d = 0; d < width; d += 16) {
      const auto line = [&](int i) { return F::as_words(F::load(group + (d + i) * kTileRows)); };
      store_transposed(line, reinterpret_cast<uint8_t*>(rows + d), width * int64_t{sizeof(float)});
    }
    __builtin_memcpy(group, rows, static_cast<size_t>(width) * kTileRows * sizeof(float));
  }
};

template <bool kCapped, typename Tiles>
void attend_groups(const AttentionRowsArgs& args) {
  args.head_dim <= kTileRowBytes ? attend<Avx512Vnni, GroupedStep<kCapped, true, Tiles>>(args)
                                 : attend<Avx512Vnni, GroupedStep<kCapped, false, Tiles>>(args);
}

template <typename Tiles>
void attention_tiles(const AttentionRowsArgs& args) {
  if (args.num_rows < kMinAttentionTileRows) return attention_whole<Avx512Vnni>(args);
  args.softcap > 0 ? attend_groups<true, Tiles>(args) : attend_groups<false, Tiles>(args);
}

}  // namespace
}  // namespace headrace::cpu
