// Probes of tile products, alone and as kernels put them together. Everything that touches a tile
// is assembly: the compiler itself uses no tiles, so nothing needs saving around it, and each
// statement names all the memory it reads. Sequences take the kernels' own statements
// (amx/tile.h), or those of stand-ins (bench/stand_ins.cpp).

#include HEADRACE_LANES_HEADER

#include "bench/probe/probe.h"

namespace headrace::cpu {
namespace {

// Tiles 0-3 are sums [16][16]; 4 and 5 are A [16][4 k], 6 and 7 are B [k][64 bytes].
TileConfig tile_config(int k) {
  TileConfig config = {};
  for (int i = 0; i < kNumTiles; ++i) {
    const bool is_a = i == 4 || i == 5;
    const bool is_b = i >= 6;
    set_shape(&config, i, is_b ? k : kTileRows, is_a ? 4 * k : kTileRowBytes);
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

// Sequences. Their memory: rows of activations, more than L1 holds, in records that do not all fall
// into the same sets of a cache; packed weights that L1 holds; a few times the sums of 2 x 2 tiles.

constexpr int64_t kRecord = 576, kRecordInputBytes = 512;
constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;
constexpr int64_t kBlock = kTileRows * kRecord;  // the rows of one tile
constexpr int64_t kStreamBytes = int64_t{512} << 10, kWeightBytes = int64_t{32} << 10;
constexpr int64_t kNumBlocks = kStreamBytes / kBlock;
constexpr int64_t kSteps = kRecordInputBytes / kTileRowBytes;  // tiles along a record
constexpr int64_t kSumBytes = 4 * kTileBytes, kNumSums = 4;
static_assert(kStreamBytes + kWeightBytes + kNumSums * kSumBytes <= int64_t{kSequenceBytes});
static_assert(kNumBlocks % 2 == 0);

class Memory {
 public:
  explicit Memory(void* memory) : begin_(static_cast<uint8_t*>(memory)) {}
  // Records of 16 rows, one after the other and then again from the first.
  const uint8_t* block(int64_t i) const { return begin_ + i % kNumBlocks * kBlock; }
  const uint8_t* weights(int64_t tile) const {
    return begin_ + kStreamBytes + tile * kTileBytes % kWeightBytes;
  }
  const uint8_t* streamed_weights(int64_t tile) const {
    return begin_ + tile * kTileBytes % kStreamBytes;
  }
  // Of four tiles. Those of the next i lie elsewhere, so that no load waits for a store.
  uint8_t* sums(int64_t i) const {
    return begin_ + kStreamBytes + kWeightBytes + i % kNumSums * kSumBytes;
  }

 private:
  uint8_t* begin_;
};

using Tiles = HEADRACE_LANES;
using Scope = TileScope<Tiles>;

// Tiles from first_b on are B, the others, A and sums, have num_rows rows.
TileConfig sequence_config(int num_rows, int first_b) {
  TileConfig config = {};
  for (int i = 0; i < kNumTiles; ++i) {
    set_shape(&config, i, i >= first_b ? kTileRows : num_rows, kTileRowBytes);
  }
  return config;
}

enum class Instruction : uint8_t { kInt8, kBF16 };

template <Instruction kInstruction, int kSum, int kA, int kB>
[[gnu::always_inline]] inline void product() {
  if constexpr (kInstruction == Instruction::kInt8) {
    Tiles::product_ss<kSum, kA, kB>();
  } else {
    Tiles::product_bf16<kSum, kA, kB>();
  }
}

// The four products of 2 x 2 tiles.
template <Instruction kInstruction>
[[gnu::always_inline]] inline void grid() {
  product<kInstruction, 0, 4, 6>();
  product<kInstruction, 1, 4, 7>();
  product<kInstruction, 2, 5, 6>();
  product<kInstruction, 3, 5, 7>();
}

[[gnu::always_inline]] inline void zero_sums() {
  Tiles::zero<0>();
  Tiles::zero<1>();
  Tiles::zero<2>();
  Tiles::zero<3>();
}

[[gnu::always_inline]] inline void load_sums(const uint8_t* sums) {
  Tiles::load<0>(sums, kTileRowBytes);
  Tiles::load<1>(sums + kTileBytes, kTileRowBytes);
  Tiles::load<2>(sums + 2 * kTileBytes, kTileRowBytes);
  Tiles::load<3>(sums + 3 * kTileBytes, kTileRowBytes);
}

[[gnu::always_inline]] inline void store_sums(uint8_t* sums) {
  Tiles::store<0>(sums, kTileRowBytes);
  Tiles::store<1>(sums + kTileBytes, kTileRowBytes);
  Tiles::store<2>(sums + 2 * kTileBytes, kTileRowBytes);
  Tiles::store<3>(sums + 3 * kTileBytes, kTileRowBytes);
}

// The four operands of 2 x 2 tiles: two of rows, two of weights.
[[gnu::always_inline]] inline void load_grid(const uint8_t* a, const uint8_t* next_a,
                                             const Memory& memory, int64_t step) {
  Tiles::load<4>(a, kRecord);
  Tiles::load<5>(next_a, kRecord);
  Tiles::load<6>(memory.weights(2 * step), kTileRowBytes);
  Tiles::load<7>(memory.weights(2 * step + 1), kTileRowBytes);
}

// kNumB: B changes with each product, as it does where it is used by few rows, or stays.
template <Instruction kInstruction, int kRows, int kNumB>
void products(void* bytes, int64_t iterations) {
  constexpr int kOtherB = kNumB == 2 ? 7 : 6;
  const Memory memory(bytes);
  const Scope scope(sequence_config(kRows, 6));
  zero_sums();
  load_grid(memory.block(0), memory.block(1), memory, 0);
  for (int64_t i = 0; i < iterations; ++i) {
    product<kInstruction, 0, 4, 6>();
    product<kInstruction, 1, 4, kOtherB>();
    product<kInstruction, 2, 5, 6>();
    product<kInstruction, 3, 5, kOtherB>();
  }
}

template <Instruction kInstruction, int kSum, int kA, int kB, bool kStore>
[[gnu::always_inline]] inline void from_zero(uint8_t* sums) {
  Tiles::zero<kSum>();
  product<kInstruction, kSum, kA, kB>();
  if constexpr (kStore) Tiles::store<kSum>(sums + kSum * kTileBytes, kTileRowBytes);
}

template <Instruction kInstruction, bool kStore>
void products_from_zero(void* bytes, int64_t iterations) {
  const Memory memory(bytes);
  const Scope scope(sequence_config(kTileRows, 6));
  load_grid(memory.block(0), memory.block(1), memory, 0);
  for (int64_t i = 0; i < iterations; ++i) {
    from_zero<kInstruction, 0, 4, 6, kStore>(memory.sums(i));
    from_zero<kInstruction, 1, 4, 7, kStore>(memory.sums(i));
    from_zero<kInstruction, 2, 5, 6, kStore>(memory.sums(i));
    from_zero<kInstruction, 3, 5, 7, kStore>(memory.sums(i));
  }
}

template <Instruction kInstruction>
void grouped_from_zero(void* bytes, int64_t iterations) {
  const Memory memory(bytes);
  const Scope scope(sequence_config(kTileRows, 6));
  load_grid(memory.block(0), memory.block(1), memory, 0);
  for (int64_t i = 0; i < iterations; ++i) {
    zero_sums();
    grid<kInstruction>();
    grid<kInstruction>();
    store_sums(memory.sums(i));
  }
}

enum class Level : uint8_t { kL1, kL2 };

// 32 rows of one record each, A from one place or streamed. kSumSteps: the sums are in memory and
// come into tiles for so many steps at a time; 0: they stay.
template <Instruction kInstruction, Level kA, int64_t kSumSteps>
void grids(void* bytes, int64_t iterations) {
  constexpr int64_t kGroup = kSumSteps > 0 ? kSumSteps : kSteps;
  const Memory memory(bytes);
  const Scope scope(sequence_config(kTileRows, 6));
  zero_sums();
  for (int64_t i = 0; i < iterations; ++i) {
    const int64_t block = kA == Level::kL2 ? 2 * i : 0;
    for (int64_t first = 0; first < kSteps; first += kGroup) {
      uint8_t* const sums = memory.sums((i * kSteps + first) / kGroup);
      if constexpr (kSumSteps > 0) load_sums(sums);
      for (int64_t step = first; step < first + kGroup; ++step) {
        // In L1 two of the steps, so that the weights fit beside.
        const int64_t at = (kA == Level::kL2 ? step : step % 2) * kTileRowBytes;
        load_grid(memory.block(block) + at, memory.block(block + 1) + at, memory, step);
        grid<kInstruction>();
      }
      if constexpr (kSumSteps > 0) store_sums(sums);
    }
  }
}

// The same with all in L1 and every operand zero: what a processor holds back where loads and
// products of other numbers draw power together, it does not hold back here.
template <Instruction kInstruction>
void grids_of_zeros(void* /*bytes*/, int64_t iterations) {
  const Operand zeros[4] = {};
  const Scope scope(sequence_config(kTileRows, 6));
  zero_sums();
  for (int64_t i = 0; i < iterations * kSteps; ++i) {
    Tiles::load<4>(zeros[0].bytes, kTileRowBytes);
    Tiles::load<5>(zeros[1].bytes, kTileRowBytes);
    Tiles::load<6>(zeros[2].bytes, kTileRowBytes);
    Tiles::load<7>(zeros[3].bytes, kTileRowBytes);
    grid<kInstruction>();
  }
}

// Eight loads of kRows rows along a block of records.
template <Level kA, int kRows>
void row_loads(void* bytes, int64_t iterations) {
  const Memory memory(bytes);
  const Scope scope(sequence_config(kRows, kNumTiles));
  for (int64_t i = 0; i < iterations; ++i) {
    const uint8_t* const a = memory.block(kA == Level::kL2 ? i : 0);
    for (int64_t step = 0; step < kSteps; step += 4) {
      const uint8_t* const at = a + step * kTileRowBytes;
      Tiles::load<0>(at, kRecord);
      Tiles::load<1>(at + kTileRowBytes, kRecord);
      Tiles::load<2>(at + 2 * kTileRowBytes, kRecord);
      Tiles::load<3>(at + 3 * kTileRowBytes, kRecord);
    }
  }
}

template <Level kB>
void weight_loads(void* bytes, int64_t iterations) {
  const Memory memory(bytes);
  const Scope scope(sequence_config(kTileRows, 0));
  for (int64_t i = 0; i < iterations; ++i) {
    const uint8_t* const b =
        kB == Level::kL2 ? memory.streamed_weights(4 * i) : memory.weights(4 * i);
    Tiles::load<0>(b, kTileRowBytes);
    Tiles::load<1>(b + kTileBytes, kTileRowBytes);
    Tiles::load<2>(b + 2 * kTileBytes, kTileRowBytes);
    Tiles::load<3>(b + 3 * kTileBytes, kTileRowBytes);
  }
}

// Fixed-point numbers of two 8-bit digits: 16 rows by a panel of 16 outputs, a sum for each product
// of two digits, as amx/fixed.h has them. A record holds 256 high digits, then their low ones;
// weights hold for 64 inputs the high and the low digits.
void digits(void* bytes, int64_t iterations) {
  const Memory memory(bytes);
  const Scope scope(sequence_config(kTileRows, 6));
  zero_sums();
  constexpr int64_t kHighSteps = kSteps / 2;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int64_t step = 0; step < 2 * kHighSteps; ++step) {
      const uint8_t* const high =
          memory.block(2 * i + step / kHighSteps) + step % kHighSteps * kTileRowBytes;
      Tiles::load<6>(memory.weights(2 * step), kTileRowBytes);
      Tiles::load<4>(high, kRecord);
      Tiles::product_ss<0, 4, 6>();
      Tiles::load<7>(memory.weights(2 * step + 1), kTileRowBytes);
      Tiles::product_su<1, 4, 7>();
      Tiles::load<5>(high + kRecordInputBytes / 2, kRecord);
      Tiles::product_ss<2, 5, 6>();
      Tiles::product_su<3, 5, 7>();
    }
  }
}

constexpr uint32_t kInt8Bits = kIsaAmxTile | kIsaAmxInt8, kBF16Bits = kIsaAmxTile | kIsaAmxBf16;
constexpr auto kInt8 = Instruction::kInt8, kBF16 = Instruction::kBF16;
constexpr auto kProduct = SequenceItem::kProduct, kLoad = SequenceItem::kLoad;
constexpr int kGridsItems = 4 * kSteps;

constexpr SequenceRow kSequences[] = {
    {"amx tdpbssd, 16 rows", kInt8Bits, kProduct, 4, products<kInt8, 16, 2>},
    {"amx tdpbssd, 8 rows", kInt8Bits, kProduct, 4, products<kInt8, 8, 2>},
    {"amx tdpbssd, 4 rows", kInt8Bits, kProduct, 4, products<kInt8, 4, 2>},
    {"amx tdpbssd, 1 row", kInt8Bits, kProduct, 4, products<kInt8, 1, 2>},
    {"amx tdpbssd, 16 rows, the same b", kInt8Bits, kProduct, 4, products<kInt8, 16, 1>},
    {"amx tdpbssd, 8 rows, the same b", kInt8Bits, kProduct, 4, products<kInt8, 8, 1>},
    {"amx tdpbssd, 4 rows, the same b", kInt8Bits, kProduct, 4, products<kInt8, 4, 1>},
    {"amx tdpbssd, 1 row, the same b", kInt8Bits, kProduct, 4, products<kInt8, 1, 1>},
    {"amx tdpbf16ps, 16 rows", kBF16Bits, kProduct, 4, products<kBF16, 16, 2>},
    {"amx tdpbf16ps, 1 row", kBF16Bits, kProduct, 4, products<kBF16, 1, 2>},
    {"amx zero, tdpbssd", kInt8Bits, kProduct, 4, products_from_zero<kInt8, false>},
    {"amx zero, tdpbf16ps", kBF16Bits, kProduct, 4, products_from_zero<kBF16, false>},
    {"amx zero, tdpbssd, store", kInt8Bits, kProduct, 4, products_from_zero<kInt8, true>},
    {"amx zero, tdpbf16ps, store", kBF16Bits, kProduct, 4, products_from_zero<kBF16, true>},
    {"amx 4 zeros, 8 tdpbssd, 4 stores", kInt8Bits, kProduct, 8, grouped_from_zero<kInt8>},
    {"amx 4 zeros, 8 tdpbf16ps, 4 stores", kBF16Bits, kProduct, 8, grouped_from_zero<kBF16>},
    {"amx 2 x 2 tdpbssd, all in L1", kInt8Bits, kProduct, kGridsItems, grids<kInt8, Level::kL1, 0>},
    {"amx 2 x 2 tdpbssd, all in L1, zeros", kInt8Bits, kProduct, kGridsItems,
     grids_of_zeros<kInt8>},
    {"amx 2 x 2 tdpbssd, a in L2", kInt8Bits, kProduct, kGridsItems, grids<kInt8, Level::kL2, 0>},
    {"amx 2 x 2 tdpbssd, a in L2, sums in memory", kInt8Bits, kProduct, kGridsItems,
     grids<kInt8, Level::kL2, 4>},
    {"amx 2 x 2 tdpbf16ps, all in L1", kBF16Bits, kProduct, kGridsItems,
     grids<kBF16, Level::kL1, 0>},
    {"amx 2 x 2 tdpbf16ps, all in L1, zeros", kBF16Bits, kProduct, kGridsItems,
     grids_of_zeros<kBF16>},
    {"amx 2 x 2 tdpbf16ps, a in L2", kBF16Bits, kProduct, kGridsItems, grids<kBF16, Level::kL2, 0>},
    {"amx 2 x 2 tdpbf16ps, a in L2, sums in memory", kBF16Bits, kProduct, kGridsItems,
     grids<kBF16, Level::kL2, 8>},
    {"amx 1 x 1 tdpbssd of two digits, a in L2", kInt8Bits, kProduct, kGridsItems, digits},
    {"amx load of a, 16 rows in L1", kIsaAmxTile, kLoad, kSteps, row_loads<Level::kL1, 16>},
    {"amx load of a, 16 rows in L2", kIsaAmxTile, kLoad, kSteps, row_loads<Level::kL2, 16>},
    {"amx load of a, 1 row in L1", kIsaAmxTile, kLoad, kSteps, row_loads<Level::kL1, 1>},
    {"amx load of a, 1 row in L2", kIsaAmxTile, kLoad, kSteps, row_loads<Level::kL2, 1>},
    {"amx load of b in L1", kIsaAmxTile, kLoad, 4, weight_loads<Level::kL1>},
    {"amx load of b in L2", kIsaAmxTile, kLoad, 4, weight_loads<Level::kL2>},
};

}  // namespace

const ProbeUnit kAmxProbes = {kPeaks, 3,          nullptr,
                              0,      kSequences, sizeof(kSequences) / sizeof(*kSequences)};

}  // namespace headrace::cpu
