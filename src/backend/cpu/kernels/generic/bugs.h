// Seeded bugs: the proof that verification finds what it should.
//
// Tests compile a copy of a unit with HEADRACE_MUTATIONS, in which mutant(bug) is a switch that
// they set; each bug must then be found. Everywhere else it is false at compile time and leaves no
// code.
#pragma once

namespace headrace::cpu {

enum class Bug : int {
  kNone,
  // Columns of elementwise ops.
  kColumnsTailSkipped,
  kColumnsTailReadWhole,
  kColumnsTailWrittenWhole,
  // Float32 products.
  kDirectSumStale,
  kDirectSlicesNotFolded,
  kDirectLastPanelSkipped,
  kDirectFirstPanelIgnored,
  kDirectRowStrideOfSums,
  kDirectRowsStuck,
  kBlockedSumsNotCleared,
  kBlockedLastRowDropped,
  kBlockedLastInputSkipped,
  kBlockedRowStrideIgnored,
  kDenseTailReadWhole,
  kDenseOddInputWrong,
  // Packed weights.
  kSubScaleOfNextBlock,
  kSubScaleHighBitsIgnored,
  kSubMinimumFromScales,
  kHighPlaneIgnored,
  kHighPlaneOfFirstGroup,
  kMinimumMissing,
  kMinimumSign,
  kZeroPointOffByOne,
  kTableOfOtherFormat,
  kUnitOfFirstBlock,
  // Integer products.
  kIntegerEarlierSlicesLost,
  kIntegerHighTermDropped,
  kIntegerTermsSwapped,
  kIntegerZeroMissing,
  kIntegerSumOfOtherHalf,
  kIntegerScaleOfFirstBlock,
  kIntegerOffsetsStuck,
  kIntegerLastRowDropped,
  kIntegerSliceStuck,
  kIntegerWordsStuck,
  kIntegerDirectSliceStuck,
  kIntegerDirectHighTermDropped,
  kIntegerDirectMinimumSkipped,
  kIntegerDirectEarlierSlicesLost,
  kIntegerDirectRowsStuck,
  // bf16 products.
  kBf16FirstPanelIgnored,
  kBf16EarlierSlicesLost,
  kBf16SliceStuck,
  kBf16OddInputSkipped,
  kBf16PairOrder,
  kBf16DirectLastPanelSkipped,
  kBf16LastTileDropped,
  kBf16TilesOfOneHeight,
  // bf16 activations.
  kBf16ActivationTruncated,
  kBf16ActivationNanHidden,
  kBf16ActivationTailNotCleared,
  // Quantise.
  kQuantiseHalvesSwapped,
  kQuantiseLastBlockSkipped,
  kQuantiseMarginMissing,
  kQuantiseHighNotRounded,
  kQuantiseLowTermSign,
  kQuantiseNanHidden,
  kQuantiseSumSign,
  kQuantiseSliceStrideIgnored,
  // Finish, gate, norm.
  kFinishBiasSkipped,
  kFinishResidualSkipped,
  kFinishSoftcapSkipped,
  kFinishScaleBeforeBias,
  kFinishResidualOfFirstRow,
  kFinishStridesSwapped,
  kGateAndUpSwapped,
  kGateUpBiasSkipped,
  kGateKindIgnored,
  kNormEpsilonSkipped,
  kNormMeanNotSubtracted,
  kNormWidthRoundedUp,
  kNormTailNotCentred,
  kNormScaleSkipped,
  kNormResidualSkipped,
  // Queries, keys and values.
  kRopeOfFirstRow,
  kRopePairingMixed,
  kRopeSign,
  kRopeSkipped,
  kQkvNormOfFirstHead,
  kQkvNormWeightOfFirstHead,
  kAppendNeighboursCleared,
  kAppendValueScaleOfKeys,
  kAppendPaddingNotZero,
  kQkvScaleSkipped,
  kAppendBlockTableOffByOne,
  kAppendSlotOffByOne,
  kAppendValuesOfFirstHead,
  kAppendPlanesOfOneHead,
  kBf16Truncated,
  kKvScaleTooLarge,
  // Attention.
  kAttentionKvHeadMap,
  kAttentionCausalOffByOne,
  kAttentionWindowOffByOne,
  kAttentionQueryHeadMap,
  kAttentionLogBaseMixed,
  kAttentionBlockTableOffByOne,
  kAttentionMaskSkipped,
  kAttentionTopNotRaised,
  kAttentionTotalNotCorrected,
  kAttentionSumNotCorrected,
  kAttentionValueScaleOfKeys,
  kAttentionValuesFromKeys,
  kAttentionLastStepSkipped,
  kAttentionEarlierSplitsLost,
  kAttentionSplitNotCorrected,
  kAttentionSinkIgnored,
  kAttentionSinkOfFirstHead,
  kAttentionTailDimsSkipped,
  kAttentionMergeSkipsRow,
  kAttentionLastRowDropped,
  kAttentionSoftcapIgnored,
  kAttentionDirectRestSkipped,
  kAttentionDirectEdgeIgnored,
  kCount,
};

#ifdef HEADRACE_MUTATIONS
extern Bug active_bug;
namespace {
inline bool mutant(Bug bug) { return bug == active_bug; }
}  // namespace
#else
namespace {
constexpr bool mutant(Bug) { return false; }
}  // namespace
#endif

}  // namespace headrace::cpu
