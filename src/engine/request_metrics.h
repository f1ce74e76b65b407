// What the engine measures of its requests, for /metrics. Times in seconds.
//
// Bucket edges are those of the dashboards that already exist for such servers (CLIENTS note, 4.6),
// so that their quantile panels mean the same here.
#pragma once

#include <array>
#include <cstdint>

#include "base/metrics.h"
#include "engine/draft.h"
#include "engine/request.h"

namespace headrace {

inline constexpr size_t kNumFinishReasons = 6;  // values of FinishReason

struct MetricsSnapshot {
  MetricsSnapshot();

  Histogram time_to_first_token;  // from arrival
  Histogram inter_token_latency;
  Histogram request_latency;        // from arrival to the end
  Histogram queue_time;             // submit to first planned
  Histogram prefill_time;           // first planned to first token
  Histogram decode_time;            // first token to finished
  Histogram inference_time;         // first planned to finished
  Histogram prompt_tokens;          // per request
  Histogram generation_tokens;      // per request
  Histogram max_generation_tokens;  // asked for, per request
  Histogram iteration_tokens;       // per step
  Histogram step_gap;               // from the return of a forward pass to the next, without sleep

  uint64_t prompt_tokens_total = 0;
  uint64_t prompt_tokens_computed = 0;  // of them, by a step
  uint64_t prompt_tokens_cached = 0;    // of them, found in the cache: all the others
  uint64_t generation_tokens_total = 0;
  uint64_t preemptions_total = 0;
  uint64_t steps_total = 0;
  uint64_t steps_predicted = 0;       // whose time was predicted
  uint64_t steps_close = 0;           // of them, those that took within 15 % of it
  uint64_t steps_shortened = 0;       // whose prompts had to be short for somebody who decodes
  uint64_t wakes_total = 0;           // of threads, by the engine
  uint64_t prefix_cache_queries = 0;  // prompt tokens looked for
  uint64_t prefix_cache_hits = 0;     // prompt tokens found
  std::array<uint64_t, kNumFinishReasons> finished{};  // by FinishReason
  std::array<DraftCounts, kNumDraftSources> drafts{};  // by DraftSource
  uint64_t draft_pauses = 0;                           // guessing gave less than it took
  bool drafts_paused = false;                          // now

  // Records a finished request: everything but the two token latencies, which need each token.
  void record_finished(const Event& event, int32_t max_tokens, TimeUs arrived_us);
};

}  // namespace headrace
