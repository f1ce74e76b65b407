#include "model/memory_plan.h"

#include "base/memory_shortage.h"
#include "base/strings.h"

namespace headrace {

Status check_memory(const MemoryPlan& plan, size_t kv_memory_bytes, const MemorySupply& supply) {
  const size_t needed = plan.total(kv_memory_bytes);
  note_memory_needed(needed);
  if (needed <= supply.bytes) return {};
  Error error = make_error(
      ErrorCode::kExhausted,
      "not enough memory: this model needs {} (weights {}, keys and values {}, activations {}, the "
      "rest {}), but {} leaves {}",
      format_bytes(needed), format_bytes(plan.weights),
      format_bytes(std::max(kv_memory_bytes, plan.least_kv())), format_bytes(plan.workspace),
      format_bytes(plan.other), supply.bound_by, format_bytes(supply.bytes));
  error.hint = fmt::format("{}, take a smaller model or quantisation, or lower {}", supply.remedy,
                           kv_memory_bytes > 0 ? "--kv-memory" : "--batch-tokens");
  return error;
}

}  // namespace headrace
