// Tile registers: eight of up to 16 rows of 64 bytes, and the products between them (Intel AMX).
//
// Kernels are templates over an implementation with the static functions of HardwareTiles, so that
// one source is built with these instructions for serving and with a plain C++ model of them for
// the tests (tests/differential/tile_model.h); no processor is needed to know that it is right.
//
// Tile numbers are template arguments, as the instructions encode them. A tile must be configured
// before use; its rows and row bytes bound every access, rows and bytes beyond them are zero. The
// operands of a product are three different tiles: accumulator [m rows][n words], a [m rows][k
// words], b [k rows][n words], the shapes agreeing exactly; a wrong shape or configuration stops
// the process (#UD, #GP). Words of a and b are four bytes or two bf16 along the inputs:
//   accumulator[m][n] += sum over k, i of a[m][k].part[i] * b[k][n].part[i]
//   product_ss  signed a, signed b bytes; product_su, product_us, product_uu: sign of a, of b.
//               32-bit sums that wrap around.
//   product_bf16  per call and element: even = +0, odd = +0; for k in order
//               even = fma(a.part[0], b.part[0], even), odd likewise of part[1];
//               accumulator = accumulator + (even + odd).
//               Each operation rounds to nearest even, takes denormals for zeros and turns a
//               denormal result into a zero of its sign, whatever the thread's control register.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, "TDPBF16PS",
// "TDPBSSD", "LDTILECFG", "TILELOADD".
//
// Threads: tiles belong to a thread. A kernel configures at its start and releases at its end
// (TileScope), so that no thread carries tile state out of a kernel and a context switch saves
// none. The process must hold the permission that detect_isa() asks for.
//
// Own assembly because g++ 12 declares too little memory as read by its tile intrinsics: stores to
// the configuration or to an operand could be dropped or moved past their use.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace headrace::cpu {

inline constexpr int kNumTiles = 8;
inline constexpr int kTileRows = 16;
inline constexpr int kTileRowBytes = 64;
inline constexpr int kTileWords = kTileRowBytes / 4;
inline constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;

// The 64 bytes that LDTILECFG reads. Palette 1 is the only one in use; the other fields not named
// here must be zero.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];  // of tiles 0 to 7
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

namespace {

// Gives `tile` its shape in a configuration; 0 rows and 0 bytes leave it unusable.
constexpr void set_shape(TileConfig* config, int tile, int64_t rows, int64_t row_bytes) {
  config->palette = 1;
  config->rows[tile] = static_cast<uint8_t>(rows);
  config->row_bytes[tile] = static_cast<uint16_t>(row_bytes);
}

// The configurations for tiles of up to kTileRows rows of x. Kernels have theirs as constants: one
// just written in parts would have to reach the first cache before LDTILECFG could read it whole.
struct ConfigsByRows {
  TileConfig of[kTileRows + 1];
};
template <typename Fn>  // configure(rows, &config)
constexpr ConfigsByRows configs_by_rows(const Fn& configure) {
  ConfigsByRows configs{};
  for (int rows = 1; rows <= kTileRows; ++rows) configure(rows, &configs.of[rows]);
  return configs;
}

// Two tiles of rows by two of weights: sums are tiles 0 to 3, rows 4 and 5, weights 6 and 7.
constexpr void configure_two_by_two(int64_t rows, TileConfig* config) {
  for (int tile = 0; tile < 6; ++tile) set_shape(config, tile, rows, kTileRowBytes);
  for (int b = 6; b < 8; ++b) set_shape(config, b, kTileRows, kTileRowBytes);
}

// While it lives, the calling thread's tiles have the shapes of `config`.
template <typename Tiles>
class TileScope {
 public:
  explicit TileScope(const TileConfig& config) { Tiles::configure(config); }
  ~TileScope() { Tiles::release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)

// The instructions. "memory" where an instruction reads or writes more than its operands say.
struct HardwareTiles {
  static void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  [[gnu::always_inline]] inline static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // Row r comes from base + r * stride.
  template <int kTile>
  [[gnu::always_inline]] inline static void load(const void* base, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(base), "r"(stride), "i"(kTile)
                     : "memory");
  }
  // The same, for data that will not be read again soon.
  template <int kTile>
  [[gnu::always_inline]] inline static void load_once(const void* base, int64_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(base), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] inline static void store(void* base, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(base), "r"(stride), "i"(kTile)
                     : "memory");
  }

  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_ss() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_su() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_us() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_uu() {
    __asm__ volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  [[gnu::always_inline]] inline static void product_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace
}  // namespace headrace::cpu
