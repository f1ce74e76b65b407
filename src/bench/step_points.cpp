#include "bench/step_points.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {
namespace {

class PointMaker {
 public:
  PointMaker(const StepWork& work, const PointPlan& plan, const Ceilings& ceilings, int64_t chunk)
      : work_(work), plan_(plan), ceilings_(ceilings), chunk_(chunk) {}

  Point prefill(int64_t tokens) const {
    const auto count = static_cast<double>(tokens);
    const double steps = std::ceil(count / static_cast<double>(chunk_));
    const double step_tokens = std::min(count, static_cast<double>(chunk_));
    const double step_bytes = work_.weight_bytes_of(step_tokens);
    double bytes = steps * step_bytes;
    for (int64_t end = chunk_; end < tokens; end += chunk_) bytes += work_.kv_bytes(end);
    return {PointKind::kPrefill,
            tokens,
            count,
            work_.linear_seconds(count, 1, ceilings_.peaks(), ceilings_.isa()) +
                work_.mixer_seconds(0, tokens, ceilings_.peaks(), ceilings_.isa()),
            bytes,
            static_cast<size_t>(step_bytes),
            [tokens](StepBench& bench) { return bench.prefill(tokens); }};
  }

  Point decode(int64_t depth) const {
    const int64_t steps = plan_.decode_steps;
    return steps_of(PointKind::kDecode, depth, depth, 1,
                    [=](StepBench& bench) { return bench.decode(depth, steps); });
  }

  Point batch(int64_t sequences) const {
    const int64_t depth = plan_.batch_depth, steps = plan_.decode_steps;
    return steps_of(PointKind::kBatch, sequences, depth, sequences, [=](StepBench& bench) {
      return bench.decode_batch(static_cast<int>(sequences), depth, steps);
    });
  }

 private:
  Point steps_of(PointKind kind, int64_t size, int64_t depth, int64_t sequences,
                 std::function<StepTiming(StepBench&)> run) const {
    const int64_t steps = plan_.decode_steps;
    const auto total = static_cast<double>(steps * sequences);
    const double step_bytes = work_.weight_bytes_of(static_cast<double>(sequences)) +
                              static_cast<double>(sequences) * work_.kv_bytes(depth + steps / 2);
    const double mixers_s = static_cast<double>(sequences) *
                            work_.mixer_seconds(depth, steps, ceilings_.peaks(), ceilings_.isa());
    return {kind,
            size,
            total,
            work_.linear_seconds(total, total, ceilings_.peaks(), ceilings_.isa()) + mixers_s,
            step_bytes * static_cast<double>(steps),
            static_cast<size_t>(step_bytes),
            std::move(run)};
  }

  const StepWork& work_;
  const PointPlan& plan_;
  const Ceilings& ceilings_;
  int64_t chunk_;
};

int64_t longest_prompt(const PointPlan& plan) {
  return plan.prefills.empty() ? 2 * kBlockTokens : plan.prefills.back();
}

}  // namespace

StepBench::Room room_for(const PointPlan& plan) {
  StepBench::Room room;
  room.single_tokens = longest_prompt(plan);
  if (!plan.depths.empty()) {
    room.single_tokens = std::max(room.single_tokens, plan.depths.back() + plan.decode_steps);
  }
  if (!plan.batches.empty()) {
    room.max_sequences = static_cast<int>(plan.batches.back());
    room.batch_tokens = plan.batch_depth + plan.decode_steps;
  }
  return room;
}

std::string_view point_kind_name(PointKind kind) {
  constexpr std::string_view kNames[] = {"prefill", "decode", "batch"};
  return kNames[static_cast<size_t>(kind)];
}

Ceilings::Ceilings(int num_threads, uint32_t isa)
    : num_threads_(num_threads), isa_(isa), peaks_(cpu::peak_rates(num_threads)) {}

Ceilings::Ceilings(std::vector<cpu::PeakRate> peaks, uint32_t isa, double bandwidth)
    : isa_(isa), peaks_(std::move(peaks)), known_bandwidth_(bandwidth) {}

Result<double> Ceilings::bandwidth(size_t working_set) {
  if (known_bandwidth_ > 0) return known_bandwidth_;
  const double steps =
      std::round(8 * std::log2(static_cast<double>(std::max<size_t>(working_set, 1))));
  auto found = bandwidths_.find(static_cast<int>(steps));
  if (found == bandwidths_.end()) {
    const double measured = TRY(cpu::read_bandwidth(working_set, num_threads_));
    found = bandwidths_.emplace(static_cast<int>(steps), measured).first;
  }
  return found->second;
}

namespace {

// The same point with adapters, which are read once per step, each by the sequences that have it.
Point adapted(const Point& point, const PointPlan& plan) {
  Point with = point;
  with.adapted = true;
  const size_t sequences = point.kind == PointKind::kBatch ? static_cast<size_t>(point.size) : 1;
  size_t num_bytes = 0;
  for (size_t i = 0; i < std::min(sequences, plan.adapters.size()); ++i) {
    num_bytes += plan.adapters[i]->num_bytes();
  }
  with.bytes *= 1 + static_cast<double>(num_bytes) / static_cast<double>(point.working_set);
  with.working_set += num_bytes;
  return with;
}

}  // namespace

uint32_t matmul_isa(const cpu::KernelSet& kernels) {
  uint32_t isa = 0;
  for (const cpu::MatmulRows& rows : kernels.matmul) {
    for (int i = 0; i < rows.count; ++i) isa |= rows.rows[static_cast<size_t>(i)]->isa;
  }
  return isa;
}

std::vector<Point> make_points(const StepWork& work, const PointPlan& plan,
                               const Ceilings& ceilings, int64_t chunk) {
  const PointMaker maker(work, plan, ceilings, chunk);
  std::vector<Point> points;
  for (const int64_t tokens : plan.prefills) points.push_back(maker.prefill(tokens));
  for (const int64_t depth : plan.depths) points.push_back(maker.decode(depth));
  for (const int64_t sequences : plan.batches) points.push_back(maker.batch(sequences));
  if (plan.adapters.empty()) return points;
  std::vector<Point> pairs;
  for (const Point& point : points) {
    pairs.push_back(point);
    pairs.push_back(adapted(point, plan));
  }
  return pairs;
}

void expect_points(const ExpectedTimes& times, const PointPlan& plan, int64_t chunk,
                   std::vector<Point>* points) {
  const int64_t steps = plan.decode_steps;
  for (Point& point : *points) {
    if (point.adapted) continue;
    if (point.kind == PointKind::kPrefill) {
      point.expected = times.prefill(point.size, chunk);
      continue;
    }
    const bool alone = point.kind == PointKind::kDecode;
    const int64_t depth = alone ? point.size : plan.batch_depth;
    point.expected = times.decode(alone ? 1 : point.size, depth + steps / 2);
    if (point.expected) point.expected->repeat(static_cast<double>(steps));
  }
}

Status time_points(const PointPlan& plan, StepBench& bench, std::vector<Point>* points,
                   const std::function<void(size_t done, size_t total)>& progress) {
  bench.fill_contexts(longest_prompt(plan));
  const size_t total = static_cast<size_t>(plan.repeats) * points->size();
  size_t done = 0;
  for (int repeat = 0; repeat < plan.repeats; ++repeat) {
    for (Point& point : *points) {
      bench.use_adapters(point.adapted ? std::span(plan.adapters)
                                       : std::span<const PackedAdapter* const>());
      const StepTiming timing = point.run(bench);
      point.seconds.push_back(timing.seconds);
      if (!timing.finite || point.digest.value_or(timing.digest) != timing.digest) {
        return make_error(
            ErrorCode::kInternal, "{} {} gave {} in repeat {}", point_kind_name(point.kind),
            point.size, timing.finite ? "other logits" : "logits that are no numbers", repeat + 1);
      }
      point.digest = timing.digest;
      point.joins_per_step =
          static_cast<double>(timing.num_joins) / static_cast<double>(timing.num_steps);
      progress(++done, total);
    }
  }
  return {};
}

Result<PointFigures> figures_of(const Point& point, size_t num_layers, Ceilings& ceilings) {
  CHECK(!point.seconds.empty(), "{} {} was not timed", point_kind_name(point.kind), point.size);
  std::vector<double> seconds = point.seconds;
  std::sort(seconds.begin(), seconds.end());
  PointFigures figures;
  figures.bandwidth = TRY(ceilings.bandwidth(point.working_set));
  const double memory_s = point.bytes / figures.bandwidth;
  figures.tokens_per_s = point.num_tokens / seconds[seconds.size() / 2];
  figures.lowest = point.num_tokens / seconds.back();
  figures.highest = point.num_tokens / seconds.front();
  figures.limit = point.num_tokens / std::max(memory_s, point.arithmetic_s);
  if (point.expected) figures.expected = point.num_tokens / point.expected->seconds();
  figures.bound_by_memory = memory_s >= point.arithmetic_s;
  figures.joins_per_layer =
      point.joins_per_step / static_cast<double>(std::max<size_t>(num_layers, 1));
  return figures;
}

}  // namespace headrace
