// A campaign: the stages of one command, in order. A sweep begins with one client, goes on with as
// many as may be, and then offers rates from what the one got to somewhat more than the many got.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "bench/serve/stage.h"
#include "bench/serve/summary.h"

namespace headrace::loads {

struct Campaign {
  StageRule rule;     // of each stage; its shape may be a sweep
  int num_rates = 6;  // of a sweep
  Slo slo;
  RequestForm form;
  // Called before and after each stage, with what there is so far: what is written then is not lost
  // when a later stage fails.
  std::function<void(const LoadShape& shape)> before = [](const LoadShape&) {};
  std::function<void(std::vector<StageSummary>& stages)> after = [](std::vector<StageSummary>&) {};
};

// Ends with the stage that ended early, if one did.
std::vector<StageSummary> run_campaign(const Campaign& campaign, Workload& workload,
                                       Transport& transport,
                                       const std::atomic<bool>* stop = nullptr);

// Seconds and number of requests that waited inside the server, so far, from its metrics in
// Prometheus's form (`..._queue_time_seconds_sum` and `_count`, as vLLM names them).
struct ServerQueue {
  double seconds = 0, requests = 0;
};
ServerQueue read_server_queue(std::string_view exposition);

}  // namespace headrace::loads
