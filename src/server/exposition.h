// /metrics: the engine's counters and histograms as Prometheus text, under the names, labels and
// bucket edges that dashboards made for vLLM expect; and the server's own counters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/engine_snapshot.h"
#include "engine/request_metrics.h"
#include "server/http/http.h"
#include "server/served_model.h"

namespace headrace {

// What is told of one model.
struct ModelMetrics {
  std::string name;
  EngineSnapshot engine;
  MetricsSnapshot requests;
  uint64_t disconnects = 0, slow_clients = 0;
  std::vector<ExpertRows> experts = {};
  bool takes_adapters = false;
  std::vector<std::string> adapters_in_use = {};
  int64_t adapters_seen_s = 0;  // wall clock
};
ModelMetrics metrics_of(const ServedModel& model);

// Prometheus text format 0.0.4.
std::string metrics_text(std::span<const ModelMetrics> models, const HttpCounters& server);

// Of what is sent elsewhere; null: not sent, and nothing is said of it.
class KvPublisher;
class TraceExporter;
std::string telemetry_metrics_text(const KvPublisher* kv_events, const TraceExporter* traces);

// How evenly a layer's experts are used.
struct ExpertLoad {
  double largest = 0;   // share of the layer's rows that its busiest expert had
  double smallest = 0;  // and its idlest one
  int64_t num_unused = 0;
};
ExpertLoad expert_load(const ExpertRows& layer);
// Three gauges for each layer with experts; with `each_expert` also the rows of every expert, as
// many series as the network has experts. Empty where no network has any.
std::string expert_metrics_text(std::span<const ModelMetrics> models, bool each_expert);

}  // namespace headrace
