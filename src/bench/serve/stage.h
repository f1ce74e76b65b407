// A stage: one load for some time, and what became of each of its requests.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "bench/serve/load_shape.h"
#include "bench/serve/transport.h"
#include "bench/serve/workload.h"

namespace headrace::loads {

// Seconds since the stage began.
struct RequestRecord {
  double due = 0;   // when it should be sent; every latency counts from here
  double sent = 0;  // when it was: later only where --connections were in use, or the load is slow
  double ended = 0;
  std::vector<double> pieces;  // when each piece of text came
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::optional<double> server_prompt_ms, server_answer_ms;
  long status = 0;
  std::string error;  // empty: answered in full

  bool ok() const { return error.empty(); }
};

struct StageRule {
  LoadShape shape;
  double seconds = 30;  // in which requests are sent; what runs then is waited for
  // Of these, at the start: not counted. Nothing: a tenth of what the load came to be, and none of
  // a few requests.
  std::optional<double> warmup;
  int64_t max_requests = 0;  // 0: no limit
  int connections = 512;     // requests that run at a time
  uint64_t seed = 0;
};

struct StageRecord {
  StageRule rule;
  std::vector<RequestRecord> requests;  // in the order of sending
  double seconds = 0;                   // until its last answer
  double cpu_share = 0;                 // of one core, by this process
  std::string ended_by;                 // why it ended before its time; empty: it did not
};

// Sends and waits. Ends early where nobody accepts connections any more, and where `stop` is true.
StageRecord run_stage(const StageRule& rule, const RequestForm& form, Workload& workload,
                      Transport& transport, const std::atomic<bool>* stop = nullptr);

}  // namespace headrace::loads
