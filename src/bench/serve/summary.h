// What a stage says: latencies, rates and goodput, with 95 % intervals from resampling.
//
// Latencies: of the requests that were due inside the window (after the warm-up, before the end of
// sending) and answered in full, counted from when they were due, so that a late load hides
// nothing. Rates: of all tokens that came inside the window, whoever asked for them.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/serve/stage.h"

namespace headrace::loads {

// The p-th part (0 to 1) of ascending values, between neighbours in proportion; 0 of none.
double quantile(std::span<const double> sorted, double p);

struct Estimate {
  double value = 0, low = 0, high = 0;
};

inline constexpr std::array<double, 4> kQuantiles = {0.50, 0.90, 0.95, 0.99};

// Milliseconds.
struct Distribution {
  size_t count = 0;
  Estimate mean;
  std::array<Estimate, kQuantiles.size()> quantiles;  // as kQuantiles
  std::vector<double> sorted;                         // the values
};
Distribution distribution_of(std::vector<double> values, uint64_t seed);

// Most that each latency may be, in milliseconds: of a request that is good.
struct Slo {
  std::optional<double> ttft, itl, e2e;  // itl: the mean gap within a request
  bool any() const { return ttft || itl || e2e; }
};
// "ttft=300ms,itl=50ms,e2e=2s"; empty: none.
Result<Slo> parse_slo(std::string_view text);

enum Latency : uint8_t { kTtft, kItl, kTpot, kE2e, kQueue, kServerPrompt, kServerAnswer };
inline constexpr size_t kNumLatencies = 7;
inline constexpr std::array<std::string_view, kNumLatencies> kLatencyNames = {
    "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "queue_ms", "server_prompt_ms", "server_answer_ms"};

// What the model and the machine allow at the best, of the mean request of a stage.
struct StageForecast {
  double ttft_ms = 0, tpot_ms = 0;
  std::string ttft_bound, tpot_bound;  // what bounds each: "reads", "products", "attention"
};

struct StageSummary {
  std::string load;
  LoadShape shape;
  double window_seconds = 0;
  size_t num_requests = 0;  // due inside the window
  size_t num_answered = 0;  // of these, in full
  size_t num_refused = 0;   // with status 429 or 503
  size_t num_failed = 0;    // otherwise
  std::string first_error;  // of those
  std::array<Distribution, kNumLatencies> latencies;
  Estimate output_tokens_per_s;
  double requests_per_s = 0;       // that were answered inside the window
  double offered_per_s = 0;        // that were due inside it
  double prompt_tokens_per_s = 0;  // of those whose first token came inside it
  double mean_running = 0;
  double mean_prompt_tokens = 0, mean_answer_tokens = 0;  // of the answered
  std::optional<StageForecast> forecast;                  // where the command has one
  std::optional<double> goodput_per_s;                    // requests within the limits
  double growth = 0;  // seconds that an answer takes longer, for each second of load
  bool saturated = false;
  std::optional<double> server_queue_ms;  // by the server's own metrics, the mean of the stage
  double cpu_share = 0;
  std::string ended_by;
};

StageSummary summarize(const StageRecord& record, const Slo& slo);

// More than this and the load itself may be what is measured.
inline constexpr double kMostCpuShare = 0.20;

// Between which rates the server is saturated, over the open stages of a sweep.
struct Saturation {
  std::optional<double> sustained;  // the highest rate that it kept up with
  std::optional<double> exceeded;   // the lowest that it did not
  std::optional<double> estimate;   // what it served, by the growth of its answers there
};
Saturation find_saturation(std::span<const StageSummary> stages);

}  // namespace headrace::loads
