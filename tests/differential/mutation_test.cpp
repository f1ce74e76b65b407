// Seeded bugs: every bug of generic/bugs.h, switched on in a copy of a unit, is found by
// verification, and the copy without a bug passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels/generic/bugs.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/verify/row_reports.h"

namespace headrace::cpu {

extern const KernelUnit kMutantAvx2Unit;
extern const KernelUnit kMutantAvx512Unit;
extern const KernelUnit kMutantAvx512Bf16Unit;

Bug active_bug = Bug::kNone;

namespace {

// A bug and the row that is tried first.
struct BugRow {
  Bug bug;
  const char* name;
  const char* row;
};
constexpr BugRow kBugs[] = {
    {Bug::kColumnsTailSkipped, "columns tail skipped", "finish"},
    {Bug::kColumnsTailReadWhole, "columns tail read whole", "finish"},
    {Bug::kColumnsTailWrittenWhole, "columns tail written whole", "finish"},
    {Bug::kDirectSumStale, "direct sum stale", "matmul_f32_direct"},
    {Bug::kDirectSlicesNotFolded, "direct slices not folded", "matmul_f32_direct"},
    {Bug::kDirectLastPanelSkipped, "direct last panel skipped", "matmul_f32_direct"},
    {Bug::kDirectFirstPanelIgnored, "direct first panel ignored", "matmul_f32_direct"},
    {Bug::kDirectRowStrideOfSums, "direct row stride of sums", "matmul_f32_direct"},
    {Bug::kDirectRowsStuck, "direct rows stuck", "matmul_f32_direct"},
    {Bug::kBlockedSumsNotCleared, "blocked sums not cleared", "matmul_f32_blocked"},
    {Bug::kBlockedLastRowDropped, "blocked last row dropped", "matmul_f32_blocked"},
    {Bug::kBlockedLastInputSkipped, "blocked last input skipped", "matmul_f32_blocked"},
    {Bug::kBlockedRowStrideIgnored, "blocked row stride ignored", "matmul_f32_blocked"},
    {Bug::kDenseTailReadWhole, "dense tail read whole", "matmul_f32_direct"},
    {Bug::kDenseOddInputWrong, "dense odd input wrong", "matmul_f16_direct"},
    {Bug::kSubScaleOfNextBlock, "sub scale of next block", "matmul_q4_k_int16_direct"},
    {Bug::kSubScaleHighBitsIgnored, "sub scale high bits ignored", "matmul_q4_k_int16_direct"},
    {Bug::kSubMinimumFromScales, "sub minimum from scales", "matmul_q4_k_int16_direct"},
    {Bug::kHighPlaneIgnored, "high plane ignored", "matmul_q5_0_int16_direct"},
    {Bug::kHighPlaneOfFirstGroup, "high plane of first group", "matmul_q6_k_int16_direct"},
    {Bug::kMinimumMissing, "minimum missing", "matmul_q4_1_int16_direct"},
    {Bug::kMinimumSign, "minimum sign", "matmul_q4_1_int16_direct"},
    {Bug::kZeroPointOffByOne, "zero point off by one", "unpack_q8_0"},
    {Bug::kTableOfOtherFormat, "table of other format", "matmul_iq4_nl_int16_direct"},
    {Bug::kUnitOfFirstBlock, "unit of first block", "matmul_q8_0_int16_direct"},
    {Bug::kIntegerEarlierSlicesLost, "integer earlier slices lost", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerHighTermDropped, "integer high term dropped", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerTermsSwapped, "integer terms swapped", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerZeroMissing, "integer zero missing", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerSumOfOtherHalf, "integer sum of other half", "matmul_q2_k_int16_blocked"},
    {Bug::kIntegerScaleOfFirstBlock, "integer scale of first block", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerOffsetsStuck, "integer offsets stuck", "matmul_q4_1_int16_blocked"},
    {Bug::kIntegerLastRowDropped, "integer last row dropped", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerSliceStuck, "integer slice stuck", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerWordsStuck, "integer words stuck", "matmul_q8_0_int16_blocked"},
    {Bug::kIntegerDirectSliceStuck, "integer direct slice stuck", "matmul_q8_0_int16_direct"},
    {Bug::kIntegerDirectHighTermDropped, "integer direct high term dropped",
     "matmul_q8_0_int16_direct"},
    {Bug::kIntegerDirectMinimumSkipped, "integer direct minimum skipped",
     "matmul_q4_1_int16_direct"},
    {Bug::kIntegerDirectEarlierSlicesLost, "integer direct earlier slices lost",
     "matmul_q8_0_int16_direct"},
    {Bug::kIntegerDirectRowsStuck, "integer direct rows stuck", "matmul_q8_0_int16_direct"},
    {Bug::kBf16FirstPanelIgnored, "bf16 first panel ignored", "matmul_bf16_bf16_direct"},
    {Bug::kBf16EarlierSlicesLost, "bf16 earlier slices lost", "matmul_bf16_bf16_blocked"},
    {Bug::kBf16SliceStuck, "bf16 slice stuck", "matmul_bf16_bf16_direct"},
    {Bug::kBf16OddInputSkipped, "bf16 odd input skipped", "matmul_bf16_bf16_direct"},
    {Bug::kBf16PairOrder, "bf16 pair order", "matmul_bf16_bf16_direct"},
    {Bug::kBf16DirectLastPanelSkipped, "bf16 direct last panel skipped", "matmul_bf16_bf16_direct"},
    {Bug::kBf16LastTileDropped, "bf16 last tile dropped", "matmul_bf16_bf16_blocked"},
    {Bug::kBf16TilesOfOneHeight, "bf16 tiles of one height", "matmul_bf16_bf16_blocked"},
    {Bug::kBf16ActivationTruncated, "bf16 activation truncated", "quantise_bf16"},
    {Bug::kBf16ActivationNanHidden, "bf16 activation nan hidden", "quantise_bf16"},
    {Bug::kBf16ActivationTailNotCleared, "bf16 activation tail not cleared", "quantise_bf16"},
    {Bug::kQuantiseHalvesSwapped, "quantise halves swapped", "quantise_int16"},
    {Bug::kQuantiseLastBlockSkipped, "quantise last block skipped", "quantise_int16"},
    {Bug::kQuantiseMarginMissing, "quantise margin missing", "quantise_int16"},
    {Bug::kQuantiseHighNotRounded, "quantise high not rounded", "quantise_int16"},
    {Bug::kQuantiseLowTermSign, "quantise low term sign", "quantise_int16"},
    {Bug::kQuantiseNanHidden, "quantise nan hidden", "quantise_int16"},
    {Bug::kQuantiseSumSign, "quantise sum sign", "quantise_int16"},
    {Bug::kQuantiseSliceStrideIgnored, "quantise slice stride ignored", "quantise_int16"},
    {Bug::kFinishBiasSkipped, "finish bias skipped", "finish"},
    {Bug::kFinishResidualSkipped, "finish residual skipped", "finish"},
    {Bug::kFinishSoftcapSkipped, "finish softcap skipped", "finish"},
    {Bug::kFinishScaleBeforeBias, "finish scale before bias", "finish"},
    {Bug::kFinishResidualOfFirstRow, "finish residual of first row", "finish"},
    {Bug::kFinishStridesSwapped, "finish strides swapped", "finish"},
    {Bug::kGateAndUpSwapped, "gate and up swapped", "gate"},
    {Bug::kGateUpBiasSkipped, "gate up bias skipped", "gate"},
    {Bug::kGateKindIgnored, "gate kind ignored", "gate"},
    {Bug::kNormEpsilonSkipped, "norm epsilon skipped", "norm"},
    {Bug::kNormMeanNotSubtracted, "norm mean not subtracted", "norm"},
    {Bug::kNormWidthRoundedUp, "norm width rounded up", "norm"},
    {Bug::kNormTailNotCentred, "norm tail not centred", "norm"},
    {Bug::kNormScaleSkipped, "norm scale skipped", "norm"},
    {Bug::kNormResidualSkipped, "norm residual skipped", "norm"},
    {Bug::kRopeOfFirstRow, "rope of first row", "qkv"},
    {Bug::kRopePairingMixed, "rope pairing mixed", "qkv"},
    {Bug::kRopeSign, "rope sign", "qkv"},
    {Bug::kRopeSkipped, "rope skipped", "qkv"},
    {Bug::kQkvNormOfFirstHead, "qkv norm of first head", "qkv"},
    {Bug::kQkvNormWeightOfFirstHead, "qkv norm weight of first head", "qkv"},
    {Bug::kAppendNeighboursCleared, "append neighbours cleared", "qkv"},
    {Bug::kAppendValueScaleOfKeys, "append value scale of keys", "qkv"},
    {Bug::kAppendPaddingNotZero, "append padding not zero", "qkv"},
    {Bug::kQkvScaleSkipped, "qkv scale skipped", "qkv"},
    {Bug::kAppendBlockTableOffByOne, "append block table off by one", "qkv"},
    {Bug::kAppendSlotOffByOne, "append slot off by one", "qkv"},
    {Bug::kAppendValuesOfFirstHead, "append values of first head", "qkv"},
    {Bug::kAppendPlanesOfOneHead, "append planes of one head", "qkv"},
    {Bug::kBf16Truncated, "bf16 truncated", "qkv"},
    {Bug::kKvScaleTooLarge, "kv scale too large", "qkv"},
    {Bug::kAttentionKvHeadMap, "attention kv head map", "attention"},
    {Bug::kAttentionCausalOffByOne, "attention causal off by one", "attention"},
    {Bug::kAttentionWindowOffByOne, "attention window off by one", "attention"},
    {Bug::kAttentionQueryHeadMap, "attention query head map", "attention"},
    {Bug::kAttentionLogBaseMixed, "attention log base mixed", "attention"},
    {Bug::kAttentionBlockTableOffByOne, "attention block table off by one", "attention"},
    {Bug::kAttentionMaskSkipped, "attention mask skipped", "attention"},
    {Bug::kAttentionTopNotRaised, "attention top not raised", "attention"},
    {Bug::kAttentionTotalNotCorrected, "attention total not corrected", "attention"},
    {Bug::kAttentionSumNotCorrected, "attention sum not corrected", "attention"},
    {Bug::kAttentionValueScaleOfKeys, "attention value scale of keys", "attention"},
    {Bug::kAttentionValuesFromKeys, "attention values from keys", "attention"},
    {Bug::kAttentionLastStepSkipped, "attention last step skipped", "attention"},
    {Bug::kAttentionEarlierSplitsLost, "attention earlier splits lost", "attention"},
    {Bug::kAttentionSplitNotCorrected, "attention split not corrected", "attention"},
    {Bug::kAttentionSinkIgnored, "attention sink ignored", "attention"},
    {Bug::kAttentionSinkOfFirstHead, "attention sink of first head", "attention"},
    {Bug::kAttentionTailDimsSkipped, "attention tail dims skipped", "attention"},
    {Bug::kAttentionMergeSkipsRow, "attention merge skips row", "attention"},
    {Bug::kAttentionLastRowDropped, "attention last row dropped", "attention"},
    {Bug::kAttentionSoftcapIgnored, "attention softcap ignored", "attention"},
    {Bug::kAttentionDirectRestSkipped, "attention direct rest skipped", "attention"},
    {Bug::kAttentionDirectEdgeIgnored, "attention direct edge ignored", "attention"},
};

struct MutantUnit {
  const char* original;
  const KernelUnit* unit;
  int min_rows, min_bugs;  // so many at least are tried
};
constexpr MutantUnit kMutants[] = {{"avx2", &kMutantAvx2Unit, 100, 40},
                                   {"avx512", &kMutantAvx512Unit, 100, 40},
                                   {"avx512_bf16", &kMutantAvx512Bf16Unit, 3, 10}};

std::span<const KernelRow> rows_of(const MutantUnit& mutant) {
  return {mutant.unit->rows, static_cast<size_t>(mutant.unit->num_rows)};
}

// Whether the unit has the row that the bug is in.
bool has_row(const MutantUnit& mutant, std::string_view name) {
  const auto rows = rows_of(mutant);
  return std::any_of(rows.begin(), rows.end(),
                     [name](const auto& row) { return row.name == name; });
}

class ActiveBug {
 public:
  explicit ActiveBug(Bug bug) { active_bug = bug; }
  ~ActiveBug() { active_bug = Bug::kNone; }
};

const KernelUnit& unit_named(std::string_view name) {
  for (const KernelUnit* unit : all_units()) {
    if (unit->name == name) return *unit;
  }
  return *all_units().back();
}

// A mutant's row and the row that it is a copy of, which gives the bits of the class.
std::vector<std::array<UnitRow, 2>> row_pairs(const MutantUnit& mutant) {
  const KernelUnit& original = unit_named(mutant.original);
  std::vector<std::array<UnitRow, 2>> pairs;
  for (int i = 0; i < mutant.unit->num_rows; ++i) {
    pairs.push_back(
        {UnitRow{&original, original.rows + i}, UnitRow{mutant.unit, mutant.unit->rows + i}});
  }
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
  ASSERT_EQ(mutant.unit->num_rows, unit_named(mutant.original).num_rows);
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
  for (const BugRow& row : kBugs) {
    if (!has_row(mutant, row.row)) continue;
    ++total;
    const ActiveBug active(row.bug);
    const std::string found = find_bug(mutant, row.row, Depth::kQuick);
    const bool at_start = !find_bug(mutant, row.row, Depth::kStart).empty();
    EXPECT_FALSE(found.empty()) << row.name << " was not found";
    if (!found.empty()) ++num_found;
    if (at_start) ++num_found_at_start;
    std::printf("%-32s %s %s\n", row.name, at_start ? "start" : "     ", found.c_str());
  }
  std::printf("%d of %d bugs found, %d by the short form of the start\n", num_found, total,
              num_found_at_start);
  EXPECT_EQ(num_found, total);
  EXPECT_GE(total, mutant.min_bugs);
}

// The table names each bug once, in a row that some unit has.
TEST(MutationTable, IsComplete) {
  ASSERT_EQ(std::size(kBugs), static_cast<size_t>(Bug::kCount) - 1);
  for (size_t i = 0; i < std::size(kBugs); ++i) {
    EXPECT_EQ(static_cast<size_t>(kBugs[i].bug), i + 1) << kBugs[i].name;
    EXPECT_TRUE(std::any_of(std::begin(kMutants), std::end(kMutants), [&](const auto& mutant) {
      return has_row(mutant, kBugs[i].row);
    })) << kBugs[i].row;
  }
}

INSTANTIATE_TEST_SUITE_P(Units, Mutation, ::testing::ValuesIn(kMutants),
                         [](const auto& param) { return std::string(param.param.original); });

}  // namespace
}  // namespace headrace::cpu
