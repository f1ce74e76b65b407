// /metrics: the engine's counters and histograms as Prometheus text, under the names, labels and
// bucket edges that dashboards made for vLLM expect; and the server's own counters.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/request_metrics.h"
#include "server/api/session.h"
#include "server/http/http.h"

namespace headrace {

// What the server counts itself. Any thread.
struct ServerCounters {
  HttpCounters http;
  SessionCounters sessions;
};

// Prometheus text format 0.0.4.
std::string metrics_text(std::string_view model_name, const EngineSnapshot& engine,
                         const MetricsSnapshot& requests, const ServerCounters& server);

}  // namespace headrace
