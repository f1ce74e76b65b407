// Attention over int16 keys and values by byte products.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/attention_whole.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

constexpr KernelRow kRows[] = {
    attention_whole_row(HEADRACE_LANES::kIsa, &attention_whole<HEADRACE_LANES>)};

}  // namespace

extern const KernelPart kAttentionWhole;
const KernelPart kAttentionWhole = {kRows, 1};

}  // namespace headrace::cpu::HEADRACE_UNIT
