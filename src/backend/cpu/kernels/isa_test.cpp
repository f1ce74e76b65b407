#include "backend/cpu/kernels/isa.h"

#include <gtest/gtest.h>

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {
namespace isa_test {

int num_requests = 0;
bool permit() {
  ++num_requests;
  return true;
}
bool refuse() {
  ++num_requests;
  return false;
}

// A processor with everything, on a system that saves everything.
constexpr CpuidWords kAll = {~0u, ~0u, ~0u, ~0u, ~0u, 0x600E7};
constexpr uint32_t kTileIsa = kIsaAmxTile | kIsaAmxInt8 | kIsaAmxBf16;

TEST(Isa, TilesNeedPermission) {
  num_requests = 0;
  EXPECT_EQ(isa_of(kAll, &permit) & kTileIsa, kTileIsa);
  EXPECT_EQ(num_requests, 1);
  EXPECT_EQ(isa_of(kAll, &refuse), isa_of(kAll, &permit) & ~kTileIsa);
  EXPECT_EQ(num_requests, 3);
}

TEST(Isa, PermissionIsAskedOnlyWhereTilesExist) {
  num_requests = 0;
  CpuidWords no_tiles = kAll;
  no_tiles.leaf_7_edx &= ~(1u << 24);
  EXPECT_EQ(isa_of(no_tiles, &permit) & kTileIsa, 0u);
  CpuidWords not_saved = kAll;
  not_saved.saved_state = 0xE7;
  EXPECT_EQ(isa_of(not_saved, &permit) & kTileIsa, 0u);
  EXPECT_EQ(num_requests, 0);
}

TEST(Isa, BitsNeedTheStateTheyUse) {
  CpuidWords words = kAll;
  words.saved_state = 0x7;  // AVX, no AVX-512
  const uint32_t avx = isa_of(words, &permit);
  EXPECT_EQ(avx, kIsaAvx2 | kIsaFma | kIsaF16c | kIsaAvxVnni);
  EXPECT_EQ(isa_of(kAll, &refuse) & kIsaAvx512Fp16, kIsaAvx512Fp16);
  words.saved_state = 0x3;
  EXPECT_EQ(isa_of(words, &permit), 0u);
  EXPECT_EQ(isa_of(kAll, &refuse) & avx, avx);
}

// A process that was given AMX holds the permission: a second look finds the same.
TEST(Isa, DetectionIsStable) { EXPECT_EQ(detect_isa(), detect_isa()); }

}  // namespace isa_test
}  // namespace headrace::cpu
