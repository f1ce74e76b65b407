#include "bench/serve/campaign.h"

#include <algorithm>

namespace headrace::loads {
namespace {

constexpr double kBeyondThroughput = 1.2;

class Runner {
 public:
  Runner(const Campaign& campaign, Workload& workload, Transport& transport,
         const std::atomic<bool>* stop)
      : campaign_(campaign), workload_(workload), transport_(transport), stop_(stop) {}

  // False: it ended early.
  bool stage(const LoadShape& shape) {
    StageRule rule = campaign_.rule;
    rule.shape = shape;
    rule.seed += stages_.size();
    campaign_.before(shape);
    workload_.begin_stage(stages_.size());
    const StageRecord record = run_stage(rule, campaign_.form, workload_, transport_, stop_);
    stages_.push_back(summarize(record, campaign_.slo));
    campaign_.after(stages_);
    return record.ended_by.empty();
  }
  void sweep() {
    if (!stage({ShapeKind::kClosed, 1, 0})) return;
    if (!stage({ShapeKind::kClosed, campaign_.rule.connections, 0})) return;
    const double least = stages_[0].requests_per_s;
    const double most = kBeyondThroughput * std::max(stages_[1].requests_per_s, least);
    if (least <= 0) return;
    const int steps = std::max(campaign_.num_rates - 1, 1);
    for (int i = 0; i < campaign_.num_rates; ++i) {
      const double rate = least + (most - least) * i / steps;
      if (!stage({campaign_.rule.shape.swept, 1, rate})) return;
    }
  }
  std::vector<StageSummary> take() { return std::move(stages_); }

 private:
  const Campaign& campaign_;
  Workload& workload_;
  Transport& transport_;
  const std::atomic<bool>* stop_;
  std::vector<StageSummary> stages_;
};

// The value at the end of a line, if its name ends so.
double value_of(std::string_view line, std::string_view ending) {
  const size_t name_end = line.find_first_of("{ ");
  const size_t space = line.rfind(' ');
  if (name_end == line.npos || !line.substr(0, name_end).ends_with(ending)) return 0;
  return positive_number(line.substr(space + 1)).value_or(0);
}

}  // namespace

std::vector<StageSummary> run_campaign(const Campaign& campaign, Workload& workload,
                                       Transport& transport, const std::atomic<bool>* stop) {
  Runner runner(campaign, workload, transport, stop);
  if (campaign.rule.shape.kind == ShapeKind::kSweep) {
    runner.sweep();
  } else {
    runner.stage(campaign.rule.shape);
  }
  return runner.take();
}

ServerQueue read_server_queue(std::string_view exposition) {
  ServerQueue queue;
  while (!exposition.empty()) {
    const size_t end = std::min(exposition.find('\n'), exposition.size());
    const std::string_view line = exposition.substr(0, end);
    queue.seconds += value_of(line, "queue_time_seconds_sum");
    queue.requests += value_of(line, "queue_time_seconds_count");
    exposition.remove_prefix(std::min(end + 1, exposition.size()));
  }
  return queue;
}

}  // namespace headrace::loads
