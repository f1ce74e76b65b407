#include "model/memory_plan.h"

#include "base/memory_shortage.h"

namespace headrace {

Status check_memory(const MemoryPlan& plan, size_t kv_memory_bytes, const MemorySupply& supply) {
  const size_t needed = plan.total(kv_memory_bytes);
  note_memory_needed(needed);
  if (needed <= supply.bytes) return {};
  Error error = make_error(
      ErrorCode::kExhausted,
      "not enough memory: this model needs {} (weights {}, keys and values {}, activations {}, the "
      "rest {}), but {} leaves {}",
      memory_text(needed), memory_text(plan.weights),
      memory_text(std::max(kv_memory_bytes, plan.kv_block)), memory_text(plan.workspace),
      memory_text(plan.other), supply.bound_by, memory_text(supply.bytes));
  error.hint = fmt::format("{}, take a smaller model or quantisation, or lower {}", supply.remedy,
                           kv_memory_bytes > 0 ? "--kv-memory" : "--batch-tokens");
  return error;
}

}  // namespace headrace
