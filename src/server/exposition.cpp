#include "server/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/strings.h"
#include "server/process_usage.h"

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
};

void append_finished(std::string& out, std::string_view labels, const MetricsSnapshot& requests) {
  constexpr std::pair<FinishReason, std::string_view> kReasons[] = {
      {FinishReason::kStop, "stop"},
      {FinishReason::kLength, "length"},
      {FinishReason::kCancelled, "abort"},
      {FinishReason::kError, "error"}};
  append_head(out, "vllm:request_success_total", "counter", "Finished requests, by reason.");
  for (const auto& [reason, label] : kReasons) {
    append_line(out, "vllm:request_success_total",
                fmt::format("{},finished_reason=\"{}\"", labels, label),
                requests.finished[static_cast<size_t>(reason)]);
  }
}

void append_waiting(std::string& out, std::string_view labels, const EngineSnapshot& engine) {
  append_head(out, "vllm:num_requests_waiting_by_reason", "gauge", "Requests waiting, by reason.");
  append_line(out, "vllm:num_requests_waiting_by_reason",
              fmt::format("{},reason=\"capacity\"", labels), engine.num_waiting);
}

void append_sources(std::string& out, std::string_view labels, const MetricsSnapshot& requests) {
  constexpr std::string_view kName = "vllm:prompt_tokens_by_source_total";
  const std::pair<std::string_view, uint64_t> sources[] = {
      {"local_compute", requests.prompt_tokens_computed},
      {"local_cache_hit", requests.prompt_tokens_cached},
      {"external_kv_transfer", 0},
  };
  append_head(out, kName, "counter", "Prompt tokens, by where they came from.");
  for (const auto& [source, count] : sources) {
    append_line(out, kName, fmt::format("{},source=\"{}\"", labels, source), count);
  }
}

void append_cache_config(std::string& out, std::string_view labels, const EngineSnapshot& engine) {
  append_head(out, "vllm:cache_config_info", "gauge", "The KV cache, in labels.");
  append_line(out, "vllm:cache_config_info",
              fmt::format("{},block_size=\"{}\",num_gpu_blocks=\"{}\",cache_dtype=\"{}\","
                          "enable_prefix_caching=\"True\"",
                          labels, engine.kv_block_tokens, engine.kv_blocks_total, engine.kv_type),
              1);
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

struct ValueRow {
  std::string_view name, type, help;
  double value;
};

void append_values(std::string& out, std::string_view labels, std::span<const ValueRow> rows) {
  for (const ValueRow& row : rows) {
    append_head(out, row.name, row.type, row.help);
    append_line(out, row.name, labels, row.value);
  }
}

std::string labels_of(std::string_view model_name) {
  return fmt::format("model_name=\"{}\",engine=\"0\"", escape_label(model_name));
}

// A gauge with a line for each layer.
template <typename Value>
void append_layers(std::string& out, std::string_view labels, std::span<const ExpertRows> layers,
                   const ValueRow& head, const Value& value) {
  append_head(out, head.name, head.type, head.help);
  for (const ExpertRows& layer : layers) {
    append_line(out, head.name, fmt::format("{},layer=\"{}\"", labels, layer.layer),
                value(expert_load(layer)));
  }
}

void append_each_expert(std::string& out, std::string_view labels,
                        std::span<const ExpertRows> layers) {
  constexpr std::string_view kName = "headrace:expert_tokens_total";
  append_head(out, kName, "counter", "Tokens that an expert has had.");
  for (const ExpertRows& layer : layers) {
    for (size_t e = 0; e < layer.rows.size(); ++e) {
      append_line(out, kName, fmt::format("{},layer=\"{}\",expert=\"{}\"", labels, layer.layer, e),
                  layer.rows[e]);
    }
  }
}

}  // namespace

std::string metrics_text(std::string_view model_name, const EngineSnapshot& engine,
                         const MetricsSnapshot& requests, const ServerCounters& server) {
  const std::string labels = labels_of(model_name);
  const auto number = [](auto value) { return static_cast<double>(value); };
  const double kv_usage = engine.kv_blocks_total == 0
                              ? 0
                              : number(engine.kv_blocks_used) / number(engine.kv_blocks_total);
  const ValueRow rows[] = {
      {"vllm:num_requests_running", "gauge", "Requests being computed.",
       number(engine.num_running)},
      {"vllm:num_requests_waiting", "gauge", "Requests waiting.", number(engine.num_waiting)},
      {"vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.", kv_usage},
      {"headrace:kv_bytes_reserved", "gauge", "Address space of all KV blocks.",
       number(engine.kv_bytes_reserved)},
      {"headrace:kv_bytes_touched", "gauge",
       "Bytes of KV blocks that were in use at some time: memory that the system gave for them.",
       number(engine.kv_bytes_touched)},
      {"vllm:num_preemptions_total", "counter", "Requests set back to free memory.",
       number(requests.preemptions_total)},
      {"vllm:prompt_tokens_total", "counter", "Prompt tokens.",
       number(requests.prompt_tokens_total)},
      {"vllm:prompt_tokens_cached_total", "counter", "Prompt tokens taken from the cache.",
       number(requests.prompt_tokens_cached)},
      {"vllm:generation_tokens_total", "counter", "Tokens made.",
       number(requests.generation_tokens_total)},
      {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for in the cache.",
       number(requests.prefix_cache_queries)},
      {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.",
       number(requests.prefix_cache_hits)},
      {"headrace:steps_total", "counter", "Steps of the engine.", number(requests.steps_total)},
      {"headrace:decode_tokens_per_second", "gauge", "Over the last second with work.",
       engine.decode_tokens_per_s},
      {"headrace:prefill_tokens_per_second", "gauge", "Over the last second with work.",
       engine.prefill_tokens_per_s},
      {"headrace:http_requests_total", "counter", "HTTP requests.",
       number(server.http.requests.value())},
      {"headrace:http_errors_total", "counter", "HTTP requests answered with an error.",
       number(server.http.errors.value())},
      {"headrace:refused_connections_total", "counter",
       "Connections over the limit of all, or of their address.",
       number(server.http.refused_connections.value())},
      {"headrace:refused_memory_total", "counter",
       "Bodies for which the memory of requests had no room.",
       number(server.http.refused_memory.value())},
      {"headrace:refused_access_total", "counter",
       "Requests without a valid key, or of a host or origin that is not allowed.",
       number(server.http.refused_access.value())},
      {"headrace:disconnects_total", "counter",
       "Clients that left before their answer was complete.",
       number(server.sessions.disconnects.value())},
      {"headrace:slow_clients_total", "counter",
       "Answers ended for a client that reads too slowly.",
       number(server.sessions.slow_clients.value())},
  };
  std::string out;
  append_values(out, labels, rows);
  append_waiting(out, labels, engine);
  append_sources(out, labels, requests);
  append_cache_config(out, labels, engine);
  append_finished(out, labels, requests);
  append_process(out);
  for (const HistogramRow& row : kHistograms) {
    append_head(out, row.name, "histogram", row.help);
    append_histogram(out, row.name, labels, requests.*row.histogram);
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

std::string expert_metrics_text(std::string_view model_name, std::span<const ExpertRows> layers,
                                bool each_expert) {
  std::string out;
  if (layers.empty()) return out;
  const std::string labels = labels_of(model_name);
  append_layers(out, labels, layers,
                {"headrace:expert_share_largest", "gauge",
                 "Share of a layer's routed tokens that its busiest expert had.", 0},
                [](const ExpertLoad& load) { return load.largest; });
  append_layers(out, labels, layers,
                {"headrace:expert_share_smallest", "gauge",
                 "Share of a layer's routed tokens that its idlest expert had.", 0},
                [](const ExpertLoad& load) { return load.smallest; });
  append_layers(out, labels, layers,
                {"headrace:experts_unused", "gauge",
                 "Experts of a layer that no token has been routed to.", 0},
                [](const ExpertLoad& load) { return load.num_unused; });
  if (each_expert) append_each_expert(out, labels, layers);
  return out;
}

}  // namespace headrace
