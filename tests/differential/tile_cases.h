// One product of tiles as a test case, run by any implementation with HardwareTiles' functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels/amx/tile.h"

namespace headrace::cpu {

enum class TileProduct {
  kSignedSigned,
  kSignedUnsigned,
  kUnsignedSigned,
  kUnsignedUnsigned,
  kBf16
};
inline constexpr TileProduct kTileProducts[] = {
    TileProduct::kSignedSigned, TileProduct::kSignedUnsigned, TileProduct::kUnsignedSigned,
    TileProduct::kUnsignedUnsigned, TileProduct::kBf16};

// Words of the operands: sum [rows][columns], a [rows][depth], b [depth][columns].
struct TileCase {
  int rows, columns, depth;
  std::vector<uint32_t> sum, a, b;
};

namespace {

// The words of sum after one product, through loads and a store with strides of their own.
template <typename Tiles>
std::vector<uint32_t> run_tile_case(TileProduct product, const TileCase& c) {
  TileConfig config{};
  set_shape(&config, 0, c.rows, 4 * c.columns);
  set_shape(&config, 3, c.rows, 4 * c.depth);
  set_shape(&config, 7, c.depth, 4 * c.columns);
  std::vector<uint32_t> out(c.sum.size());
  const TileScope<Tiles> scope(config);
  Tiles::template load<0>(c.sum.data(), 4 * c.columns);
  Tiles::template load<3>(c.a.data(), 4 * c.depth);
  Tiles::template load_once<7>(c.b.data(), 4 * c.columns);
  switch (product) {
    case TileProduct::kSignedSigned:
      Tiles::template product_ss<0, 3, 7>();
      break;
    case TileProduct::kSignedUnsigned:
      Tiles::template product_su<0, 3, 7>();
      break;
    case TileProduct::kUnsignedSigned:
      Tiles::template product_us<0, 3, 7>();
      break;
    case TileProduct::kUnsignedUnsigned:
      Tiles::template product_uu<0, 3, 7>();
      break;
    case TileProduct::kBf16:
      Tiles::template product_bf16<0, 3, 7>();
      break;
  }
  Tiles::template store<0>(out.data(), 4 * c.columns);
  return out;
}

}  // namespace

// The same by this processor's instructions; needs AMX.
std::vector<uint32_t> run_on_hardware(TileProduct product, const TileCase& c);

}  // namespace headrace::cpu
