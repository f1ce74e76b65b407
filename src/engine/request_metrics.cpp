#include "engine/request_metrics.h"

namespace headrace {
namespace {

constexpr std::array<double, 22> kFirstTokenEdges = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr std::array<double, 19> kInterTokenEdges = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
constexpr std::array<double, 21> kRequestEdges = {
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr std::array<double, 17> kTokenEdges = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
constexpr std::array<double, 13> kStepTokenEdges = {1,   8,    16,   32,   64,   128,  256,
                                                    512, 1024, 2048, 4096, 8192, 16384};

constexpr std::array<double, 14> kGapEdges = {1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 7.5e-5, 1e-4,
                                              2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2,   1e-1};

double seconds(TimeUs from, TimeUs to) { return static_cast<double>(to - from) * 1e-6; }

}  // namespace

MetricsSnapshot::MetricsSnapshot()
    : time_to_first_token(kFirstTokenEdges),
      inter_token_latency(kInterTokenEdges),
      request_latency(kRequestEdges),
      queue_time(kRequestEdges),
      prefill_time(kRequestEdges),
      decode_time(kRequestEdges),
      inference_time(kRequestEdges),
      prompt_tokens(kTokenEdges),
      generation_tokens(kTokenEdges),
      max_generation_tokens(kTokenEdges),
      iteration_tokens(kStepTokenEdges),
      step_gap(kGapEdges) {}

void MetricsSnapshot::record_finished(const Event& event, int32_t max_tokens, TimeUs arrived_us) {
  const RequestTimes& times = event.times;
  ++finished[static_cast<size_t>(event.reason)];
  request_latency.observe(seconds(arrived_us, times.finished));
  prompt_tokens.observe(event.usage.prompt_tokens);
  generation_tokens.observe(event.usage.output_tokens);
  max_generation_tokens.observe(max_tokens);
  if (times.started == 0) return;
  queue_time.observe(seconds(times.submitted, times.started));
  inference_time.observe(seconds(times.started, times.finished));
  if (times.first_token == 0) return;
  prefill_time.observe(seconds(times.started, times.first_token));
  decode_time.observe(seconds(times.first_token, times.finished));
}

}  // namespace headrace
