#include "server/exposition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/strings.h"
#include "server/api/wall_clock.h"
#include "server/process_usage.h"
#include "server/telemetry/kv_publisher.h"
#include "server/telemetry/trace_exporter.h"

namespace headrace {
namespace {

// A label's value may not hold these unescaped.
std::string escape_label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

void append_head(std::string& out, std::string_view name, std::string_view type,
                 std::string_view help) {
  append_format(out, "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

template <typename T>
void append_line(std::string& out, std::string_view name, std::string_view labels, T value) {
  append_format(out, "{}{{{}}} {}\n", name, labels, value);
}

// Every series of a model has these.
std::string labels_of(const ModelMetrics& model) {
  return fmt::format("model_name=\"{}\",engine=\"0\"", escape_label(model.name));
}

// Edges as the reference client prints them: 1.0, not 1, since label values are compared as text.
std::string edge_text(double edge) {
  std::string text = fmt::format("{}", edge);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

void append_histogram(std::string& out, std::string_view name, std::string_view labels,
                      const Histogram& histogram) {
  for (size_t i = 0; i < histogram.edges().size(); ++i) {
    append_format(out, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                  edge_text(histogram.edges()[i]), histogram.cumulative(i));
  }
  append_format(out, "{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, histogram.count());
  append_line(out, fmt::format("{}_sum", name), labels, histogram.sum());
  append_line(out, fmt::format("{}_count", name), labels, histogram.count());
}

using Models = std::span<const ModelMetrics>;

// A family of series with one line for each model.
template <typename Value>
void append_models(std::string& out, std::string_view name, std::string_view further_labels,
                   Models models, const Value& value) {
  for (const ModelMetrics& model : models) {
    append_line(out, name, labels_of(model) + std::string(further_labels), value(model));
  }
}

struct HistogramRow {
  std::string_view name;
  Histogram MetricsSnapshot::* histogram;
  std::string_view help;
};

constexpr HistogramRow kHistograms[] = {
    {"vllm:time_to_first_token_seconds", &MetricsSnapshot::time_to_first_token,
     "Seconds from submission to the first token."},
    {"vllm:inter_token_latency_seconds", &MetricsSnapshot::inter_token_latency,
     "Seconds between consecutive tokens of one answer."},
    {"vllm:e2e_request_latency_seconds", &MetricsSnapshot::request_latency,
     "Seconds from submission to the end."},
    {"vllm:request_queue_time_seconds", &MetricsSnapshot::queue_time, "Seconds spent waiting."},
    {"vllm:request_prefill_time_seconds", &MetricsSnapshot::prefill_time,
     "Seconds from the first step to the first token."},
    {"vllm:request_decode_time_seconds", &MetricsSnapshot::decode_time,
     "Seconds from the first token to the end."},
    {"vllm:request_inference_time_seconds", &MetricsSnapshot::inference_time,
     "Seconds from the first step to the end."},
    {"vllm:request_prompt_tokens", &MetricsSnapshot::prompt_tokens, "Prompt tokens of a request."},
    {"vllm:request_generation_tokens", &MetricsSnapshot::generation_tokens,
     "Tokens made for a request."},
    {"vllm:request_max_num_generation_tokens", &MetricsSnapshot::max_generation_tokens,
     "Tokens that a request may make at most."},
    {"vllm:iteration_tokens_total", &MetricsSnapshot::iteration_tokens, "Tokens of one step."},
    {"headrace:step_gap_seconds", &MetricsSnapshot::step_gap,
     "Seconds between two forward passes of an engine that has work."},
};

struct ValueRow {
  std::string_view name, type, help;
  double (*value)(const ModelMetrics& model);
};

double kv_usage(const ModelMetrics& model) {
  const EngineSnapshot& engine = model.engine;
  return engine.kv_blocks_total == 0 ? 0
                                     : static_cast<double>(engine.kv_blocks_used) /
                                           static_cast<double>(engine.kv_blocks_total);
}

// A counter or gauge of the engine or of its requests.
template <auto member>
double engine_value(const ModelMetrics& model) {
  return static_cast<double>(model.engine.*member);
}
template <auto member>
double tier_value(const ModelMetrics& model) {
  return static_cast<double>(model.engine.tier.*member);
}
template <auto member>
double request_value(const ModelMetrics& model) {
  return static_cast<double>(model.requests.*member);
}

// clang-format off
constexpr ValueRow kValues[] = {
    {"vllm:num_requests_running", "gauge", "Requests being computed.", engine_value<&EngineSnapshot::num_running>},
    {"vllm:num_requests_waiting", "gauge", "Requests waiting.", engine_value<&EngineSnapshot::num_waiting>},
    {"vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.", kv_usage},
    {"headrace:kv_bytes_reserved", "gauge", "Address space of all KV blocks.", engine_value<&EngineSnapshot::kv_bytes_reserved>},
    {"headrace:kv_bytes_touched", "gauge", "Bytes of KV blocks that were in use at some time: memory that the system gave for them.", engine_value<&EngineSnapshot::kv_bytes_touched>},
    {"headrace:kv_tier_ram_blocks", "gauge", "Blocks of keys and values in the memory of --kv-ram.", tier_value<&TierStats::ram_blocks>},
    {"headrace:kv_tier_ram_bytes", "gauge", "Bytes of that memory that were in use at some time.", tier_value<&TierStats::ram_bytes>},
    {"headrace:kv_tier_disk_blocks", "gauge", "Blocks of keys and values in the folder of --kv-disk.", tier_value<&TierStats::disk_blocks>},
    {"headrace:kv_tier_disk_bytes", "gauge", "Bytes of this model's files there.", tier_value<&TierStats::disk_bytes>},
    {"headrace:kv_tier_kept_blocks_total", "counter", "Blocks that memory took when they were evicted.", tier_value<&TierStats::blocks_kept>},
    {"headrace:kv_tier_stored_blocks_total", "counter", "Blocks written to disk.", tier_value<&TierStats::blocks_stored>},
    {"headrace:kv_tier_read_blocks_total", "counter", "Blocks read from disk and found sound.", tier_value<&TierStats::blocks_read>},
    {"headrace:kv_tier_restored_blocks_total", "counter", "Blocks put back into the cache.", tier_value<&TierStats::blocks_restored>},
    {"headrace:kv_tier_unsound_blocks_total", "counter", "Blocks read from disk that were not what was written: they are computed again.", tier_value<&TierStats::blocks_unsound>},
    {"headrace:kv_tier_dropped_blocks_total", "counter", "Blocks not written to disk: the queue was full, or the disk failed.", tier_value<&TierStats::blocks_dropped>},
    {"headrace:kv_tier_bypasses_total", "counter", "Times that the disk failed and was left alone for half a minute.", tier_value<&TierStats::bypasses>},
    {"headrace:kv_tier_restored_tokens_total", "counter", "Prompt tokens put back into the cache instead of computed.", engine_value<&EngineSnapshot::restored_tokens>},
    {"headrace:kv_tier_waits_total", "counter", "Requests that waited for the disk.", engine_value<&EngineSnapshot::tier_waits>},
    {"headrace:kv_tier_refusals_total", "counter", "Requests computed although the disk had their beginning: that was faster.", engine_value<&EngineSnapshot::tier_refusals>},
    {"headrace:kv_tier_late_total", "counter", "Requests for which the disk was too late.", engine_value<&EngineSnapshot::tier_late>},
    {"vllm:num_preemptions_total", "counter", "Requests set back to free memory.", request_value<&MetricsSnapshot::preemptions_total>},
    {"vllm:prompt_tokens_total", "counter", "Prompt tokens.", request_value<&MetricsSnapshot::prompt_tokens_total>},
    {"vllm:prompt_tokens_cached_total", "counter", "Prompt tokens taken from the cache.", request_value<&MetricsSnapshot::prompt_tokens_cached>},
    {"vllm:generation_tokens_total", "counter", "Tokens made.", request_value<&MetricsSnapshot::generation_tokens_total>},
    {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the cache.", request_value<&MetricsSnapshot::prefix_cache_queries>},
    {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", request_value<&MetricsSnapshot::prefix_cache_hits>},
    {"headrace:steps_total", "counter", "Steps of the engine.", request_value<&MetricsSnapshot::steps_total>},
    {"headrace:step_predictions_total", "counter", "Steps whose time was predicted.", request_value<&MetricsSnapshot::steps_predicted>},
    {"headrace:step_predictions_close_total", "counter", "Steps that took within 15 % of the time that was predicted.", request_value<&MetricsSnapshot::steps_close>},
    {"headrace:steps_shortened_total", "counter", "Steps in which prompts had to be short for answers that are being made.", request_value<&MetricsSnapshot::steps_shortened>},
    {"headrace:step_wakes_total", "counter", "Threads that the engine woke, its helper and those of the connections.", request_value<&MetricsSnapshot::wakes_total>},
    {"headrace:decode_tokens_per_second", "gauge", "Over the last second with work.", engine_value<&EngineSnapshot::decode_tokens_per_s>},
    {"headrace:prefill_tokens_per_second", "gauge", "Over the last second with work.", engine_value<&EngineSnapshot::prefill_tokens_per_s>},
    {"headrace:speculation_pauses_total", "counter", "Times that guessing was set aside for a while, since it gave less than it took.", request_value<&MetricsSnapshot::draft_pauses>},
    {"headrace:speculation_paused", "gauge", "1 while it is.", request_value<&MetricsSnapshot::drafts_paused>},
    {"headrace:disconnects_total", "counter", "Clients that left before their answer was complete.", [](const ModelMetrics& model) { return static_cast<double>(model.disconnects); }},
    {"headrace:slow_clients_total", "counter", "Answers ended for a client that reads too slowly.", [](const ModelMetrics& model) { return static_cast<double>(model.slow_clients); }},
};

// Of the server, whatever the model.
struct ServerRow {
  std::string_view name, help;
  Counter HttpCounters::* counter;
};
constexpr ServerRow kServerRows[] = {
    {"headrace:http_requests_total", "HTTP requests.", &HttpCounters::requests},
    {"headrace:http_errors_total", "HTTP requests answered with an error.", &HttpCounters::errors},
    {"headrace:refused_connections_total", "Connections over the limit of all, or of their address.", &HttpCounters::refused_connections},
    {"headrace:refused_memory_total", "Bodies for which the memory of requests had no room.", &HttpCounters::refused_memory},
    {"headrace:refused_access_total", "Requests without a valid key, or of a host or origin that is not allowed.", &HttpCounters::refused_access},
    {"headrace:failed_handshakes_total", "Connections that ended before TLS was agreed on.", &HttpCounters::failed_handshakes},
};
// clang-format on

void append_finished(std::string& out, Models models) {
  constexpr std::pair<FinishReason, std::string_view> kReasons[] = {
      {FinishReason::kStop, "stop"},
      {FinishReason::kLength, "length"},
      {FinishReason::kCancelled, "abort"},
      {FinishReason::kError, "error"},
      {FinishReason::kExpired, "timeout"}};
  constexpr std::string_view kName = "vllm:request_success_total";
  append_head(out, kName, "counter", "Finished requests, by reason.");
  for (const auto& [reason, label] : kReasons) {
    append_models(out, kName, fmt::format(",finished_reason=\"{}\"", label), models,
                  [&](const ModelMetrics& model) {
                    return model.requests.finished[static_cast<size_t>(reason)];
                  });
  }
}

void append_waiting(std::string& out, Models models) {
  constexpr std::string_view kName = "vllm:num_requests_waiting_by_reason";
  append_head(out, kName, "gauge", "Requests waiting, by reason.");
  append_models(out, kName, ",reason=\"capacity\"", models,
                [](const ModelMetrics& model) { return model.engine.num_waiting; });
}

void append_sources(std::string& out, Models models) {
  constexpr std::string_view kName = "vllm:prompt_tokens_by_source_total";
  append_head(out, kName, "counter", "Prompt tokens, by where they came from.");
  for (const ModelMetrics& model : models) {
    const std::pair<std::string_view, uint64_t> sources[] = {
        {"local_compute", model.requests.prompt_tokens_computed},
        {"local_cache_hit", model.requests.prompt_tokens_cached},
        {"external_kv_transfer", 0},
    };
    for (const auto& [source, count] : sources) {
      append_line(out, kName, fmt::format("{},source=\"{}\"", labels_of(model), source), count);
    }
  }
}

struct DraftRow {
  std::string_view name, help;
  uint64_t DraftCounts::* count;
};
constexpr DraftRow kDraftRows[] = {
    {"vllm:spec_decode_num_drafts_total", "Times that tokens of a sequence were guessed.",
     &DraftCounts::num_drafts},
    {"vllm:spec_decode_num_draft_tokens_total", "Tokens guessed and computed.",
     &DraftCounts::num_tokens},
    {"vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.",
     &DraftCounts::num_accepted},
};

void append_drafts(std::string& out, Models models) {
  const auto append = [&](std::string_view name, const std::string& further, const auto& value) {
    for (size_t source = 0; source < kNumDraftSources; ++source) {
      append_models(
          out, name, fmt::format(",drafter=\"{}\"{}", kDraftSourceNames[source], further), models,
          [&](const ModelMetrics& model) { return value(model.requests.drafts[source]); });
    }
  };
  for (const DraftRow& row : kDraftRows) {
    append_head(out, row.name, "counter", row.help);
    append(row.name, "", [&](const DraftCounts& counts) { return counts.*row.count; });
  }
  constexpr std::string_view kName = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  append_head(out, kName, "counter", "Guessed tokens that were right, by their place.");
  for (size_t i = 0; i < DraftCounts::kNumPositions; ++i) {
    append(kName, fmt::format(",position=\"{}\"", i),
           [i](const DraftCounts& counts) { return counts.accepted_at[i]; });
  }
}

struct TenantRow {
  std::string_view name, type, help;
  double (*value)(const TenantUse& use);
};
constexpr TenantRow kTenantRows[] = {
    {"headrace:tenant_requests_running", "gauge",
     "Requests of a tenant, and of those below it, being computed.",
     [](const TenantUse& use) { return static_cast<double>(use.num_running); }},
    {"headrace:tenant_requests_waiting", "gauge", "Those that wait.",
     [](const TenantUse& use) { return static_cast<double>(use.num_waiting); }},
    {"headrace:tenant_tokens_total", "counter",
     "Tokens computed for a tenant and those below it, of prompts and of answers.",
     [](const TenantUse& use) { return static_cast<double>(use.num_tokens); }},
    {"headrace:tenant_step_seconds_total", "counter",
     "Seconds of the engine's steps, by the share of their tokens.",
     [](const TenantUse& use) { return use.step_s; }},
};

// As many series as --tenants names, and one for all clients that are of none.
void append_tenants(std::string& out, Models models) {
  const bool has_tenants = std::any_of(models.begin(), models.end(), [](const ModelMetrics& model) {
    return !model.engine.tenants.empty();
  });
  if (!has_tenants) return;
  for (const TenantRow& row : kTenantRows) {
    append_head(out, row.name, row.type, row.help);
    for (const ModelMetrics& model : models) {
      for (const TenantUse& use : model.engine.tenants) {
        append_line(out, row.name,
                    fmt::format("{},tenant=\"{}\"", labels_of(model), escape_label(use.name)),
                    row.value(use));
      }
    }
  }
}

// Routers read which adapters a server has at work; the value is when that was looked at.
void append_adapters(std::string& out, Models models) {
  constexpr std::string_view kName = "vllm:lora_requests_info";
  append_head(out, kName, "gauge", "Adapters in use, in labels.");
  for (const ModelMetrics& model : models) {
    if (!model.takes_adapters) continue;
    append_line(out, kName,
                fmt::format("{},max_lora=\"{}\",running_lora_adapters=\"{}\","
                            "waiting_lora_adapters=\"\"",
                            labels_of(model), kMaxAdapters, fmt::join(model.adapters_in_use, ",")),
                static_cast<double>(model.adapters_seen_s));
  }
}

void append_cache_config(std::string& out, Models models) {
  constexpr std::string_view kName = "vllm:cache_config_info";
  append_head(out, kName, "gauge", "The KV cache, in labels.");
  for (const ModelMetrics& model : models) {
    const EngineSnapshot& engine = model.engine;
    append_line(out, kName,
                fmt::format("{},block_size=\"{}\",num_gpu_blocks=\"{}\",cache_dtype=\"{}\","
                            "enable_prefix_caching=\"True\"",
                            labels_of(model), engine.kv_block_tokens, engine.kv_blocks_total,
                            engine.kv_type),
                1);
  }
}

// Under the names of the Prometheus client libraries, which have no labels.
void append_process(std::string& out) {
  const ProcessUsage usage = process_usage();
  const std::tuple<std::string_view, std::string_view, double> rows[] = {
      {"process_cpu_seconds_total", "counter", usage.cpu_seconds},
      {"process_resident_memory_bytes", "gauge", usage.resident_bytes},
      {"process_virtual_memory_bytes", "gauge", usage.virtual_bytes},
      {"process_open_fds", "gauge", usage.open_descriptors},
      {"process_max_fds", "gauge", usage.max_descriptors},
      {"process_start_time_seconds", "gauge", usage.start_time},
  };
  for (const auto& [name, type, value] : rows) {
    append_head(out, name, type, "Of this process, from the system.");
    append_format(out, "{} {}\n", name, value);
  }
}

void append_values(std::string& out, Models models) {
  for (const ValueRow& row : kValues) {
    append_head(out, row.name, row.type, row.help);
    append_models(out, row.name, "", models, row.value);
  }
}

void append_server(std::string& out, const HttpCounters& counters) {
  for (const ServerRow& row : kServerRows) {
    append_head(out, row.name, "counter", row.help);
    append_format(out, "{} {}\n", row.name, (counters.*row.counter).value());
  }
}

void append_histograms(std::string& out, Models models) {
  for (const HistogramRow& row : kHistograms) {
    append_head(out, row.name, "histogram", row.help);
    for (const ModelMetrics& model : models) {
      append_histogram(out, row.name, labels_of(model), model.requests.*row.histogram);
    }
  }
}

struct ExpertGauge {
  std::string_view name, help;
  double (*value)(const ExpertLoad& load);
};

constexpr ExpertGauge kExpertGauges[] = {
    {"headrace:expert_share_largest",
     "Share of a layer's routed tokens that its busiest expert had.",
     [](const ExpertLoad& load) { return load.largest; }},
    {"headrace:expert_share_smallest",
     "Share of a layer's routed tokens that its idlest expert had.",
     [](const ExpertLoad& load) { return load.smallest; }},
    {"headrace:experts_unused", "Experts of a layer that no token has been routed to.",
     [](const ExpertLoad& load) { return static_cast<double>(load.num_unused); }},
};

// A gauge with a line for each layer.
void append_layers(std::string& out, Models models, const ExpertGauge& gauge) {
  append_head(out, gauge.name, "gauge", gauge.help);
  for (const ModelMetrics& model : models) {
    for (const ExpertRows& layer : model.experts) {
      append_line(out, gauge.name, fmt::format("{},layer=\"{}\"", labels_of(model), layer.layer),
                  gauge.value(expert_load(layer)));
    }
  }
}

void append_each_expert(std::string& out, const ModelMetrics& model) {
  for (const ExpertRows& layer : model.experts) {
    for (size_t e = 0; e < layer.rows.size(); ++e) {
      append_line(out, "headrace:expert_tokens_total",
                  fmt::format("{},layer=\"{}\",expert=\"{}\"", labels_of(model), layer.layer, e),
                  layer.rows[e]);
    }
  }
}

}  // namespace

ModelMetrics metrics_of(const ServedModel& model) {
  return {model.info.name,
          model.engine.snapshot(),
          model.engine.metrics(),
          model.sessions.disconnects.value(),
          model.sessions.slow_clients.value(),
          model.engine.expert_rows(),
          model.adapters.takes_any(),
          model.adapters.in_use(),
          unix_seconds()};
}

std::string metrics_text(Models models, const HttpCounters& server) {
  std::string out;
  append_values(out, models);
  append_server(out, server);
  append_waiting(out, models);
  append_sources(out, models);
  append_drafts(out, models);
  append_cache_config(out, models);
  append_tenants(out, models);
  append_adapters(out, models);
  append_finished(out, models);
  append_process(out);
  append_histograms(out, models);
  return out;
}

std::string telemetry_metrics_text(const KvPublisher* kv_events, const TraceExporter* traces) {
  std::string out;
  const auto append = [&](std::string_view name, std::string_view help, uint64_t value) {
    append_head(out, name, "counter", help);
    append_format(out, "{} {}\n", name, value);
  };
  if (kv_events != nullptr) {
    append("headrace:kv_event_batches_total", "Batches of KV events that were published.",
           kv_events->num_batches());
    append("headrace:kv_events_dropped_total", "KV events for which the queue had no room.",
           kv_events->num_dropped());
  }
  if (traces != nullptr) {
    append("headrace:trace_spans_dropped_total", "Spans that the collector of traces did not get.",
           traces->num_dropped());
  }
  return out;
}

ExpertLoad expert_load(const ExpertRows& layer) {
  ExpertLoad load;
  uint64_t sum = 0, largest = 0, smallest = std::numeric_limits<uint64_t>::max();
  for (const uint64_t rows : layer.rows) {
    sum += rows;
    largest = std::max(largest, rows);
    smallest = std::min(smallest, rows);
    load.num_unused += rows == 0 ? 1 : 0;
  }
  if (sum == 0) return load;
  load.largest = static_cast<double>(largest) / static_cast<double>(sum);
  load.smallest = static_cast<double>(smallest) / static_cast<double>(sum);
  return load;
}

std::string expert_metrics_text(Models models, bool each_expert) {
  std::string out;
  const bool has_experts = std::any_of(models.begin(), models.end(), [](const ModelMetrics& model) {
    return !model.experts.empty();
  });
  if (!has_experts) return out;
  for (const ExpertGauge& gauge : kExpertGauges) append_layers(out, models, gauge);
  if (!each_expert) return out;
  append_head(out, "headrace:expert_tokens_total", "counter", "Tokens that an expert has had.");
  for (const ModelMetrics& model : models) append_each_expert(out, model);
  return out;
}

}  // namespace headrace
