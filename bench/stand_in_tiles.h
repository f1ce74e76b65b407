// Tile instructions done by others of the same core that take as long: the functions of
// HardwareTiles (kernels/amx/tile.h) for processors of that kind whose tiles are switched off.
//
//   load     a load of each row: two a cycle, as a tile's are, and of the same lines
//   product  two divisions of 256 bits: 16 cycles of a divider that does nothing beside them, where
//            rows are nine and more, else one: 8. They wait for the operands and the sum.
//   store    the same divisions, then a store of each row: one on hardware was measured to take
//            its time beside that of products, not behind it
//
// LoadedTiles leaves the divisions out: what loads and stores alone take.
//
// Tiles are the registers zmm24 to zmm31, which the compiler leaves alone around them. What is
// computed means nothing. Divisions must meet no denormals: round_denormals() once, before threads
// are made.
// Source of the times: Intel, "Intel AMX instruction throughput and latency" (product 16 cycles,
// load 8, store 16); docs/performance.md has those that hardware took.
#pragma once

#include <immintrin.h>

#include <utility>

#include "backend/cpu/kernels/amx/tile.h"

namespace headrace::cpu {
namespace {

#define HEADRACE_TILE_REGISTERS \
  "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"

template <bool kDivides>
struct TileStandIns {
  static void round_denormals() { _mm_setcsr(_mm_getcsr() | 0x8040); }

  static void configure(const TileConfig& config) {
    for (int tile = 0; tile < kNumTiles; ++tile) rows[tile] = config.rows[tile];
  }
  static void release() {}

  template <int kTile>
  [[gnu::always_inline]] inline static void zero() {
    __asm__ volatile("vpxord %%zmm%c0, %%zmm%c0, %%zmm%c0"
                     :
                     : "i"(24 + kTile)
                     : HEADRACE_TILE_REGISTERS);
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void load(const void* base, int64_t stride) {
    const auto* row = static_cast<const uint8_t*>(base);
    if (rows[kTile] == kTileRows) [[likely]] {
      load_rows<kTile>(row, stride, std::make_integer_sequence<int, kTileRows>());
    } else {
      for (int r = 0; r < rows[kTile]; ++r) load_row<kTile>(row + r * stride);
    }
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void load_once(const void* base, int64_t stride) {
    load<kTile>(base, stride);
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void store(void* base, int64_t stride) {
    divide<kTile, kTile>();
    divide<kTile, kTile>();
    auto* row = static_cast<uint8_t*>(base);
    for (int r = 0; r < rows[kTile]; ++r, row += stride) {
      __asm__ volatile("vmovdqu64 %%zmm%c1, %0"
                       : "=m"(*reinterpret_cast<Line*>(row))
                       : "i"(24 + kTile)
                       : HEADRACE_TILE_REGISTERS);
    }
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product() {
    divide<kSum, kA>();
    if (rows[kA] > 8) [[likely]]
      divide<kSum, kB>();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_ss() {
    product<kSum, kA, kB>();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_su() {
    product<kSum, kA, kB>();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_us() {
    product<kSum, kA, kB>();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_uu() {
    product<kSum, kA, kB>();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_bf16() {
    product<kSum, kA, kB>();
  }

 private:
  struct Line {
    uint8_t bytes[kTileRowBytes];
  };
  template <int kSum, int kBy>
  [[gnu::always_inline]] inline static void divide() {
    if constexpr (!kDivides) return;
    __asm__ volatile("vdivpd %%ymm%c1, %%ymm%c0, %%ymm%c0"
                     :
                     : "i"(24 + kSum), "i"(24 + kBy)
                     : HEADRACE_TILE_REGISTERS);
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void load_row(const uint8_t* row) {
    __asm__ volatile("vmovdqu64 %0, %%zmm%c1"
                     :
                     : "m"(*reinterpret_cast<const Line*>(row)), "i"(24 + kTile)
                     : HEADRACE_TILE_REGISTERS, "memory");
  }
  template <int kTile, int... kRows>
  [[gnu::always_inline]] inline static void load_rows(
      const uint8_t* row, int64_t stride, std::integer_sequence<int, kRows...> /*rows*/) {
    (load_row<kTile>(row + kRows * stride), ...);
  }

  static inline thread_local int rows[kNumTiles];
};
using StandInTiles = TileStandIns<true>;
using LoadedTiles = TileStandIns<false>;

}  // namespace
}  // namespace headrace::cpu
