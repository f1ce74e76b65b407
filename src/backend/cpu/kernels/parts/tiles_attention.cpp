// Attention over int16 keys and values in tiles (AMX, or its model).

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/amx/attention.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

constexpr KernelRow kRows[] = {attention_whole_row(kAmxUnitIsa, &attention_tiles<HEADRACE_LANES>)};

}  // namespace

extern const KernelPart kTilesAttention;
const KernelPart kTilesAttention = {kRows, 1};

}  // namespace headrace::cpu::HEADRACE_UNIT
