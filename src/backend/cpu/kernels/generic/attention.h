// Tiles of causal attention over KV blocks; the order of every sum is in kernels.h.
//
// A step of keys (then of values) is expanded to floats once for all rows of the tile
// (attention_expand.h, attention_products.h); few rows use the codes directly
// (attention_direct.h), which gives the same bits. A step's softmax is in attention_step.h, what
// makes a result of several splits in attention_merge.h. Totals stay in 16 lanes to the end.
#pragma once

#include "backend/cpu/kernels/generic/attention_merge.h"
#include "backend/cpu/kernels/generic/attention_step.h"

namespace headrace::cpu {
namespace {

// Partial sums of one split: top, total, acc.
template <typename F, typename Step>
void run_split(typename Step::Tile& t, int64_t split) {
  Step steps{t};
  for (int r = 0; r < t.rows; ++r) {
    t.top[r] = -__builtin_inff();
    F::store(t.totals + r * 16, F::zero());
    for (int64_t d = 0; d < t.dims; d += 16) F::store(t.acc + r * t.dims + d, F::zero());
  }
  const int64_t begin = larger(split * kKvSplit, t.lowest[0]) / kKvStep * kKvStep;
  const int64_t limit = smaller((split + 1) * kKvSplit, t.end[t.rows - 1]);
  for (int64_t step = begin; step < limit; step += kKvStep) steps.run(step);
  steps.finish();
}

template <typename F, typename Step>
void attend(const AttentionRowsArgs& args) {
  typename Step::Tile t(args);
  if (args.work == AttentionWork::kMerge) return merge<F>(t);
  t.load_queries(Step::kIsCapped ? args.scale : args.scale * kLog2E);
  if (args.work == AttentionWork::kSplit) {
    run_split<F, Step>(t, args.split);
    return write_partials<F>(t, args.split);
  }
  const int64_t limit = (t.end[t.rows - 1] - 1) / kKvSplit + 1;
  for (int64_t split = t.lowest[0] / kKvSplit; split < limit; ++split) {
    run_split<F, Step>(t, split);
    for (int r = 0; r < t.rows; ++r) {
      if (!t.sees(r, split)) continue;
      fold<F>(t, r, t.is_first(r, split), t.top[r], t.totals + r * 16, t.acc + r * t.dims);
    }
  }
  for (int r = 0; r < t.rows; ++r) write_row<F>(t, r);
}

template <typename F>
void attention(const AttentionRowsArgs& args) {
  if (args.num_rows == 0) return;
  if (kv_is_scaled(args.kv_type)) {
    args.softcap > 0 ? attend<F, AttendStep<F, true, true>>(args)
                     : attend<F, AttendStep<F, false, true>>(args);
  } else {
    args.softcap > 0 ? attend<F, AttendStep<F, true, false>>(args)
                     : attend<F, AttendStep<F, false, false>>(args);
  }
}

}  // namespace
}  // namespace headrace::cpu
