// Appending keys and values to the cache, and attention over it, cut into items as the plan of the
// step says (step_plan.h).
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "backend/cpu/step_plan.h"

namespace headrace::cpu {

// The items of one append, to be run by the team; lives as long as the op and refers to its
// arguments.
class QkvAppend {
 public:
  QkvAppend(const CpuContext& context, const QkvArgs& args)
      : context_(context), args_(args), step_(static_cast<const CpuStep&>(*args.step)) {}
  int64_t num_items() const { return step_.num_append_items(); }
  void run(int64_t item) const;

 private:
  void append(const AppendItem& item) const;

  const CpuContext& context_;
  const QkvArgs& args_;
  const CpuStep& step_;
};

void run_finish_qkv(const CpuContext& context, const QkvArgs& args);
void run_attention(const CpuContext& context, const AttentionArgs& args);

// Storage of a KV type in the kernels' terms.
KvDtype kv_dtype(KvType type);

}  // namespace headrace::cpu
