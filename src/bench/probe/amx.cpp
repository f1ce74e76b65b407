// Probes of tile products. Everything that touches a tile is assembly: the compiler itself uses no
// tiles, so nothing needs saving around it, and each statement names all the memory it reads.

#include "bench/probe/probe.h"

namespace headrace::cpu {
namespace {

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0-3 are sums [16][16]; 4 and 5 are A [16][4 k], 6 and 7 are B [k][64 bytes].
constexpr int kTileRows = 16;

TileConfig tile_config(int k) {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    const bool is_a = i == 4 || i == 5;
    const bool is_b = i >= 6;
    config.row_bytes[i] = static_cast<uint16_t>(is_a ? 4 * k : 64);
    config.rows[i] = static_cast<uint8_t>(is_b ? k : kTileRows);
  }
  return config;
}

struct alignas(64) Operand {
  uint8_t bytes[kTileRows * 64];
};

void load_operands(const TileConfig& config, const Operand& operand) {
  const int64_t stride = 64;
  __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
  __asm__ volatile(
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
      "tileloadd (%0,%1), %%tmm4\n\ttileloadd (%0,%1), %%tmm5\n\t"
      "tileloadd (%0,%1), %%tmm6\n\ttileloadd (%0,%1), %%tmm7"
      :
      : "r"(operand.bytes), "r"(stride), "m"(operand)
      : "memory");
}

// 2 x 2 tiles: each operand is used twice, as a matrix product does. bf16 0x3f80 is 1.
void bf16(int64_t iterations) {
  const TileConfig config = tile_config(16);
  Operand operand;
  for (int i = 0; i < kTileRows * 64; ++i) operand.bytes[i] = i % 2 == 0 ? 0x80 : 0x3f;
  load_operands(config, operand);
  for (int64_t i = 0; i < iterations; ++i) {
    __asm__ volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
  }
  __asm__ volatile("tilerelease");
}

// k: groups of four inputs; 16 fills the tiles, 8 is a block of 32 inputs.
template <int k>
void int8(int64_t iterations) {
  const TileConfig config = tile_config(k);
  Operand operand;
  for (int i = 0; i < kTileRows * 64; ++i) operand.bytes[i] = static_cast<uint8_t>(7 * i);
  load_operands(config, operand);
  for (int64_t i = 0; i < iterations; ++i) {
    __asm__ volatile(
        "tdpbssd %tmm6, %tmm4, %tmm0\n\ttdpbssd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbssd %tmm6, %tmm5, %tmm2\n\ttdpbssd %tmm7, %tmm5, %tmm3");
  }
  __asm__ volatile("tilerelease");
}

constexpr double kProducts = 4 * 16.0 * 16.0, kMultiplyAdd = 2;

constexpr PeakRow kPeaks[] = {
    {"amx tdpbf16ps", PeakKind::kBF16, kIsaAmxTile | kIsaAmxBf16, kProducts * 32 * kMultiplyAdd,
     bf16},
    {"amx tdpbssd, K 64", PeakKind::kInt8, kIsaAmxTile | kIsaAmxInt8, kProducts * 64 * kMultiplyAdd,
     int8<16>},
    {"amx tdpbssd, K 32", PeakKind::kInt8K32, kIsaAmxTile | kIsaAmxInt8,
     kProducts * 32 * kMultiplyAdd, int8<8>},
};

}  // namespace

const ProbeUnit kAmxProbes = {kPeaks, 3, nullptr, 0};

}  // namespace headrace::cpu
