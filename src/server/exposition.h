// /metrics: the engine's counters and histograms as Prometheus text, under the names, labels and
// bucket edges that dashboards made for vLLM expect; and the server's own counters.
#pragma once

#include <span>
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

// How evenly a layer's experts are used.
struct ExpertLoad {
  double largest = 0;   // share of the layer's rows that its busiest expert had
  double smallest = 0;  // and its idlest one
  int64_t num_unused = 0;
};
ExpertLoad expert_load(const ExpertRows& layer);
// Three gauges for each layer with experts; with `each_expert` also the rows of every expert, as
// many series as the network has experts. Empty for a network without.
std::string expert_metrics_text(std::string_view model_name, std::span<const ExpertRows> layers,
                                bool each_expert);

}  // namespace headrace
