// Tile instructions left out: the functions of HardwareTiles (kernels/amx/tile.h), of which only
// what other instructions wait for is done. Stores write as many bytes as they do, zeros. For
// bench_beside_tiles, whose results mean nothing.
#pragma once

#include "backend/cpu/kernels/amx/tile.h"

namespace headrace::cpu {
namespace {

struct IdleTiles {
  static void configure(const TileConfig& config) {
    __asm__ volatile("" : : "m"(config) : "memory");
  }
  static void release() { __asm__ volatile("" : : : "memory"); }

  // One instruction for one, so that the loops around them stay what they are.
  static void nothing() { __asm__ volatile("nop" : : : "memory"); }

  template <int kTile>
  [[gnu::always_inline]] inline static void zero() {
    nothing();
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void load(const void* base, int64_t stride) {
    __asm__ volatile("nop" : : "r"(base), "r"(stride) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void load_once(const void* base, int64_t stride) {
    load<kTile>(base, stride);
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void store(void* base, int64_t stride) {
    nothing();
    auto* row = static_cast<uint8_t*>(base);
    for (int r = 0; r < kTileRows; ++r, row += stride) __builtin_memset(row, 0, kTileRowBytes);
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_ss() {
    nothing();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_su() {
    nothing();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_us() {
    nothing();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_uu() {
    nothing();
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_bf16() {
    nothing();
  }
};

}  // namespace
}  // namespace headrace::cpu
