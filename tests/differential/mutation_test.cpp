// Seeded bugs: every bug of mutants/rules.py, switched on in a copy of a unit, is found by
// verification, and the copy without a bug passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "amx_model_unit.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/verify/row_reports.h"
#include "seeded_bugs.h"
#include "tile_model.h"

namespace headrace::cpu {

int active_bug = -1;

namespace mutant_avx2 {
extern const KernelPart kInt16Direct, kInt16Blocked, kFloats, kElementwise, kAttention, kDelta,
    kLatent, kRecurrent;
}  // namespace mutant_avx2
namespace mutant_avx512 {
extern const KernelPart kInt16Direct, kInt16Blocked, kFloats, kElementwise, kAttention, kDelta,
    kLatent, kRecurrent;
}  // namespace mutant_avx512
namespace mutant_avx512_bf16 {
extern const KernelPart kBf16;
}  // namespace mutant_avx512_bf16
namespace mutant_amx_model {
extern const KernelPart kTilesInt16, kDirectFixed, kTilesFixed, kQuantiseFixed, kTilesBf16,
    kTilesBf16Codes, kQuantiseBf16Codes, kTilesAttention;
}  // namespace mutant_amx_model

namespace {

constexpr const KernelPart* kAvx2Parts[] = {&mutant_avx2::kInt16Direct, &mutant_avx2::kInt16Blocked,
                                            &mutant_avx2::kFloats,      &mutant_avx2::kElementwise,
                                            &mutant_avx2::kAttention,   &mutant_avx2::kDelta,
                                            &mutant_avx2::kLatent,      &mutant_avx2::kRecurrent};
constexpr const KernelPart* kAvx512Parts[] = {
    &mutant_avx512::kInt16Direct, &mutant_avx512::kInt16Blocked, &mutant_avx512::kFloats,
    &mutant_avx512::kElementwise, &mutant_avx512::kAttention,    &mutant_avx512::kDelta,
    &mutant_avx512::kLatent,      &mutant_avx512::kRecurrent};
constexpr const KernelPart* kAvx512Bf16Parts[] = {&mutant_avx512_bf16::kBf16};

constexpr const KernelPart* kAmxModelParts[] = {
    &mutant_amx_model::kTilesInt16,        &mutant_amx_model::kDirectFixed,
    &mutant_amx_model::kTilesFixed,        &mutant_amx_model::kQuantiseFixed,
    &mutant_amx_model::kTilesBf16,         &mutant_amx_model::kTilesBf16Codes,
    &mutant_amx_model::kQuantiseBf16Codes, &mutant_amx_model::kTilesAttention};

constexpr KernelUnit kMutantAvx2Unit = {"mutant avx2", kAvx2UnitIsa, kAvx2Parts,
                                        std::size(kAvx2Parts)};
constexpr KernelUnit kMutantAvx512Unit = {"mutant avx512", kAvx512UnitIsa, kAvx512Parts,
                                          std::size(kAvx512Parts)};
constexpr KernelUnit kMutantAvx512Bf16Unit = {"mutant avx512_bf16", kAvx512Bf16UnitIsa,
                                              kAvx512Bf16Parts, std::size(kAvx512Bf16Parts)};
constexpr KernelUnit kMutantAmxModelUnit = {"mutant amx-model", HEADRACE_AMX_MODEL_ISA,
                                            kAmxModelParts, std::size(kAmxModelParts)};

constexpr int kNumBugs = std::size(kSeededBugs);

struct MutantUnit {
  const char* original;
  const KernelUnit* unit;
  int min_rows, min_bugs;  // so many at least are tried
};
constexpr MutantUnit kMutants[] = {{"avx2", &kMutantAvx2Unit, 27, 141},
                                   {"avx512", &kMutantAvx512Unit, 27, 141},
                                   {"avx512_bf16", &kMutantAvx512Bf16Unit, 3, 10},
                                   {"amx_model", &kMutantAmxModelUnit, 8, 63}};

const KernelRow* row_named(const KernelUnit& unit, std::string_view name) {
  for (const KernelRow* row : rows_of(unit)) {
    if (row->name == name) return row;
  }
  return nullptr;
}

class ActiveBug {
 public:
  explicit ActiveBug(int bug) {
    active_bug = bug;
    tile_machine().reset();
  }
  ~ActiveBug() {
    active_bug = -1;
    tile_machine().reset();
  }
};

std::vector<const KernelUnit*> units_named(std::string_view name) {
  if (name == "amx_model") return {&kAmxModelUnit, &kAmxIntegerModelUnit};
  for (const KernelUnit* unit : all_units()) {
    if (unit->name == name) return {unit};
  }
  return {};
}

// A mutant's row and the row that it is a copy of, which gives the bits of the class.
std::vector<std::array<UnitRow, 2>> row_pairs(const MutantUnit& mutant) {
  std::vector<std::array<UnitRow, 2>> pairs;
  const std::vector<const KernelRow*> rows = rows_of(*mutant.unit);
  for (const KernelUnit* original : units_named(mutant.original)) {
    for (const KernelRow* row : rows) {
      const KernelRow* same = row_named(*original, row->name);
      if (same != nullptr) pairs.push_back({UnitRow{original, same}, UnitRow{mutant.unit, row}});
    }
  }
  EXPECT_EQ(pairs.size(), rows.size()) << "a row of " << mutant.original << " has no original";
  return pairs;
}

// What finds the active bug first, beginning with the row named; empty if nothing does.
std::string find_bug(const MutantUnit& mutant, std::string_view first, Depth depth) {
  for (const bool is_first : {true, false}) {
    for (const auto& pair : row_pairs(mutant)) {
      if ((pair[1].row->name == first) != is_first) continue;
      const RowReport report = verify_rows(pair, depth, Stop::kAtFailure)[1];
      if (!report.passed()) return std::string(report.at.row->name) + ": " + report.first_failure;
    }
  }
  return {};
}

class Mutation : public ::testing::TestWithParam<MutantUnit> {
 protected:
  void SetUp() override {
    if ((GetParam().unit->isa & ~detect_isa()) != 0) GTEST_SKIP() << "not on this processor";
  }
};

TEST_P(Mutation, TheCopyWithoutABugPasses) {
  const MutantUnit& mutant = GetParam();
  int num_rows = 0;
  for (const auto& pair : row_pairs(mutant)) {
    for (const RowReport& report : verify_rows(pair, Depth::kQuick)) {
      EXPECT_TRUE(report.passed()) << report.at.row->name << ": " << report.first_failure;
      ++num_rows;
    }
  }
  EXPECT_GE(num_rows, mutant.min_rows);
}

TEST_P(Mutation, EveryBugIsFound) {
  const MutantUnit& mutant = GetParam();
  int total = 0, num_found = 0, num_found_at_start = 0;
  for (int number = 0; number < kNumBugs; ++number) {
    const SeededBug& bug = kSeededBugs[number];
    if (row_named(*mutant.unit, bug.row) == nullptr) continue;
    ++total;
    const ActiveBug active(number);
    const std::string found = find_bug(mutant, bug.row, Depth::kQuick);
    const bool at_start = !find_bug(mutant, bug.row, Depth::kStart).empty();
    EXPECT_FALSE(found.empty()) << bug.name << " was not found";
    if (!found.empty()) ++num_found;
    if (at_start) ++num_found_at_start;
    std::printf("%-32s %s %s\n", bug.name, at_start ? "start" : "     ", found.c_str());
  }
  std::printf("%d of %d bugs found, %d by the short form of the start\n", num_found, total,
              num_found_at_start);
  EXPECT_EQ(num_found, total);
  EXPECT_GE(total, mutant.min_bugs);
}

// Every bug of the table is in a row that some unit has.
TEST(SeededBugs, AreAllTried) {
  EXPECT_GE(kNumBugs, 221);
  for (const SeededBug& bug : kSeededBugs) {
    EXPECT_TRUE(std::any_of(std::begin(kMutants), std::end(kMutants), [&](const auto& mutant) {
      return row_named(*mutant.unit, bug.row) != nullptr;
    })) << bug.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Units, Mutation, ::testing::ValuesIn(kMutants),
                         [](const auto& param) { return std::string(param.param.original); });

}  // namespace
}  // namespace headrace::cpu
