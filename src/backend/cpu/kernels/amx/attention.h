// Products of attention over int16 keys and values in tiles (generic/attention_whole.h): four bytes
// of queries or weights a word, 16 rows at a time, and four byte products for each pair of operands
// (three with values).
//
// Keys are operands as they lie in their blocks: rows of 16 positions, four dimensions a word. The
// values of a step lie in four blocks, so they are copied, once for all rows, to where each 16
// dimensions are an operand of 64 positions. Sums leave the tiles once for each 16 positions of a
// step, or 16 dimensions; what T is made of them, kernels.h says.
#pragma once

#include "backend/cpu/kernels/amx/tile.h"
#include "backend/cpu/kernels/generic/attention_whole.h"
#include "backend/cpu/kernels/generic/lanes_avx512_vnni.h"

namespace headrace::cpu {
namespace {

// Fewer rows than half a tile go by vectors: they take a tile's time for less than its work.
inline constexpr int64_t kMinAttentionTileRows = 8;

template <typename Tiles>
struct TileProducts {
  using F = Avx512Vnni;
  using I = typename F::I;
  static constexpr int group_rows(int64_t /*rows*/) { return kTileRows; }
  static constexpr int64_t kTileBytes = int64_t{kTileRows} * kTileRowBytes;

  WholeTile<F>& t;
  int rows;       // of a group's tiles
  int64_t depth;  // dimensions of a product with keys

  // Sums are tiles 0 to 3, rows' high and low bytes 4 and 5, those of keys or values 6 and 7.
  explicit TileProducts(WholeTile<F>& tile)
      : t(tile),
        rows(tile.group_rows + (tile.num_larger_groups > 0 ? 1 : 0)),
        depth(tile.dims % 64 == 0   ? 64
              : tile.dims % 32 == 0 ? 32
                                    : 16) {
    configure(depth);
  }
  ~TileProducts() { Tiles::release(); }
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  // For products of `count` dimensions or positions.
  void configure(int64_t count) const {
    TileConfig config{};
    for (int sum = 0; sum < 4; ++sum) set_shape(&config, sum, rows, kTileRowBytes);
    for (int a = 4; a < 6; ++a) set_shape(&config, a, rows, count);
    for (int b = 6; b < 8; ++b) set_shape(&config, b, count / 4, kTileRowBytes);
    Tiles::configure(config);
  }

  // Tiles 2 n and 2 n + 1 += products of weights and values: high bytes, and mixed ones.
  template <int kSum>
  [[gnu::always_inline]] static void multiply(const uint8_t* values) {
    Tiles::template load<6>(values, kTileRowBytes);
    Tiles::template load<7>(values + kTileBytes, kTileRowBytes);
    Tiles::template product_us<2 * kSum, 4, 6>();
    Tiles::template product_us<2 * kSum + 1, 5, 6>();
    Tiles::template product_us<2 * kSum + 1, 4, 7>();
  }
  [[gnu::always_inline]] static void load_rows(const uint8_t* digits, int64_t low_at) {
    Tiles::template load<4>(digits, 2 * low_at);
    Tiles::template load<5>(digits + low_at, 2 * low_at);
  }
  template <int kSums>
  [[gnu::always_inline]] static void zero() {
    unrolled<0, 2 * kSums>([](auto sum) { Tiles::template zero<sum.value>(); });
  }
  template <int kSums>
  [[gnu::always_inline]] static void store(uint8_t* to) {
    unrolled<0, 2 * kSums>([&](auto sum) {
      Tiles::template store<sum.value>(to + sum.value * kTileBytes, kTileRowBytes);
    });
  }

  // 256 high + mixed of row r from stored tiles.
  [[gnu::always_inline]] static I sum_of(const uint8_t* tiles, int r) {
    const I high = F::load_words(tiles + r * kTileRowBytes);
    const I mixed = F::load_words(tiles + kTileBytes + r * kTileRowBytes);
    return F::add_words(F::template shift_left<8>(high), mixed);
  }

  void prefetch_plane(const uint8_t* plane) const {
    for (int64_t d = 0; d < t.dims; d += 4, plane += kWholeLine) {
      prefetch_line<F, KvDtype::kInt16>(plane);
    }
  }

  // Each of a block's four products has sums of its own, so that none waits for another.
  void scores(int first, int /*count*/, int64_t begin, int64_t limit) const {
    const uint8_t* queries = t.queries + first * 2 * t.query_bytes;
    for (int64_t block = begin; block < limit; ++block) {
      if (first == 0) prefetch_plane(t.next_keys[block]);
      zero<2>();
      for (int64_t d = 0; d < t.dims; d += depth) {
        if (block == begin || t.dims > depth) load_rows(queries + d, t.query_bytes);
        const uint8_t* keys = t.keys[block] + d / 4 * kWholeLine;
        Tiles::template load<6>(keys, kWholeLine);
        Tiles::template load<7>(keys + kTileRowBytes, kWholeLine);
        Tiles::template product_ss<0, 4, 6>();
        Tiles::template product_ss<1, 5, 6>();
        Tiles::template product_ss<2, 4, 7>();
        Tiles::template product_ss<3, 5, 7>();
      }
      store<2>(t.room + block * 4 * kTileBytes);
    }
  }
  [[gnu::always_inline]] I score(int /*first*/, int r, int v) const {
    const uint8_t* tiles = t.room + v * 4 * kTileBytes;
    const I mixed = F::load_words(tiles + 2 * kTileBytes + r * kTileRowBytes);
    const I low = F::load_words(tiles + 3 * kTileBytes + r * kTileRowBytes);
    const I nearest = F::template shift_right_signed<8>(F::add_words(low, F::set_bits(128)));
    return F::add_words(F::add_words(sum_of(tiles, r), mixed), nearest);
  }

  // Operands of 64 positions and 16 dimensions, high bytes and then low ones; positions of other
  // blocks have no weight, whatever stands for them.
  void start_values(int64_t begin, int64_t limit) const {
    if (depth != kKvStep) configure(kKvStep);
    auto* to = reinterpret_cast<uint8_t*>(t.kv);
    const int64_t row_bytes = t.dims / 16 * kWholeLine;  // of four positions
    for (int64_t g = 4 * begin; g < 4 * limit; ++g) {
      const int64_t from = g % 4 * row_bytes;
      for (int64_t line = 0; line < row_bytes; line += kWholeLine) {
        const uint8_t* values = t.values[g / 4] + from + line;
        prefetch_line<F, KvDtype::kInt16>(t.next_values[g / 4] + from + line);
        uint8_t* operand = to + line / kWholeLine * (2 * kTileBytes) + g * kTileRowBytes;
        F::store_words(operand, F::load_words(values));
        F::store_words(operand + kTileBytes, F::load_words(values + kTileRowBytes));
      }
    }
  }

  template <int kVectors>
  void add_vectors(int first, int count, int64_t vector) const {
    zero<kVectors>();
    load_rows(t.weights + first * int64_t{2} * kKvStep, kKvStep);
    unrolled<0, kVectors>([&](auto v) __attribute__((always_inline)) {
      const auto* operand = reinterpret_cast<const uint8_t*>(t.kv);
      multiply<v.value>(operand + (vector + v.value) * 2 * kTileBytes);
    });
    store<kVectors>(t.room);
    for (int r = 0; r < count; ++r) {
      if (!t.sees_step(first + r)) continue;
      for (int v = 0; v < kVectors; ++v) {
        t.add_sums(first + r, (vector + v) * 16, sum_of(t.room + v * 2 * kTileBytes, r));
      }
    }
  }

  void add_values(int first, int count, int64_t /*begin*/, int64_t /*limit*/) const {
    const int64_t vectors = t.dims / 16;
    int64_t vector = 0;
    for (; vector + 2 <= vectors; vector += 2) add_vectors<2>(first, count, vector);
    if (vector < vectors) add_vectors<1>(first, count, vector);
  }
  void end_values() const {
    if (depth != kKvStep) configure(depth);
  }
};

template <typename Tiles>
void attention_tiles(const AttentionRowsArgs& args) {
  using F = Avx512Vnni;
  if (args.num_rows < kMinAttentionTileRows) return attention_whole<F>(args);
  args.softcap > 0 ? attend<F, WholeStep<F, true, TileProducts<Tiles>>>(args)
                   : attend<F, WholeStep<F, false, TileProducts<Tiles>>>(args);
}

}  // namespace
}  // namespace headrace::cpu
