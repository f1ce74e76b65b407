// /metrics: the engine's counters and histograms as Prometheus text, under the names, labels and
// bucket edges that dashboards made for vLLM expect; and the server's own counters.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "server/http.h"

namespace headrace {

// What the server counts itself. Any thread.
struct ServerCounters {
  HttpCounters http;
  Counter disconnects;   // clients that left before their answer was complete
  Counter slow_clients;  // answers ended because the client read too slowly
  std::atomic<int> live_responses = 0;
  std::atomic<TimeUs> busy_since = 0;  // when live_responses last rose from 0
};

// Prometheus text format 0.0.4.
std::string metrics_text(std::string_view model_name, const EngineSnapshot& engine,
                         const MetricsSnapshot& requests, const ServerCounters& server);

}  // namespace headrace
