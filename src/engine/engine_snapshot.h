// EngineSnapshot: a consistent copy of the engine's counters, for /metrics, the page and tests.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/kv_tier.h"
#include "engine/tenants.h"

namespace headrace {

struct EngineSnapshot {
  int num_running = 0;
  int num_waiting = 0;
  int64_t kv_blocks_total = 0, kv_blocks_used = 0, kv_blocks_cached = 0;
  int kv_block_tokens = kBlockTokens;
  std::string_view kv_type;  // how keys and values are stored: a name of kKvTypeNames
  // Address space of all blocks, and the part that was written at some time: the system gives
  // memory only for that.
  uint64_t kv_bytes_reserved = 0, kv_bytes_touched = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0;  // since start
  uint64_t num_steps = 0, num_preemptions = 0, num_requests = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0;
  uint64_t finished_error = 0;     // or expired
  double decode_tokens_per_s = 0;  // over the last second with work
  double prefill_tokens_per_s = 0;
  TierStats tier;  // zeros without one
  uint64_t restored_tokens = 0, tier_waits = 0, tier_refusals = 0, tier_late = 0;
  uint64_t last_step_tokens = 0;
  TimeUs last_step_us = 0;  // when it ended; progress for /health
  std::vector<TenantUse> tenants;
};

// The rows that each expert of a layer has had since the start: as many for a token as it has
// experts there.
struct ExpertRows {
  int layer = 0;
  std::vector<uint64_t> rows;  // by expert
};

}  // namespace headrace
