// Ops of layers that keep a state of a sequence instead of its positions: convolution along the
// positions, state space scan. A state has one writer: the item that takes its head or channels.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace headrace::cpu {

// Where a sequence's state lies while a span is computed (model/cache_groups.h): after the position
// before the span, and after its last. They may be the same place. Guesses that may be taken back
// (Span::states_ahead) have a place of their own.
struct StatePlaces {
  const float* before;  // null: the span is the beginning, the state zeros
  float* after;         // the rows before the guesses
  float* ahead;         // and after these; null: there are none
};
StatePlaces state_places(const Span& span, const KvPlaneView& plane);

void run_causal_conv(const CpuContext& context, const CausalConvArgs& args);
void run_scan(const CpuContext& context, const ScanArgs& args);

}  // namespace headrace::cpu
