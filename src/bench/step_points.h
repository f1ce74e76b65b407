// The points of `headrace bench step`: prompts, depths and batches, what bounds each, and what was
// measured of it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels/registry.h"
#include "base/result.h"
#include "bench/expected.h"
#include "bench/limits.h"
#include "bench/step_bench.h"
#include "bench/step_work.h"

namespace headrace {

// What to time; sizes are ascending and fit the model's context.
struct PointPlan {
  std::vector<int64_t> prefills, depths, batches;
  int64_t decode_steps = 32;
  int64_t batch_depth = 128;
  int repeats = 3;
  // Of each sequence in turn; then every point is timed without and with them.
  std::vector<const PackedAdapter*> adapters = {};
};

// Room that all points of a plan need.
StepBench::Room room_for(const PointPlan& plan);

enum class PointKind : uint8_t { kPrefill, kDecode, kBatch };
std::string_view point_kind_name(PointKind kind);  // "prefill", "decode", "batch"

// Something to time, and what bounds it.
struct Point {
  PointKind kind;
  int64_t size;         // tokens, depth, or sequences
  double num_tokens;    // that one run computes
  double arithmetic_s;  // of one run at the peaks
  double bytes;         // that one run reads
  size_t working_set;   // that one step reads
  std::function<StepTiming(StepBench&)> run;
  bool adapted = false;                       // with the plan's adapters
  std::optional<ExpectedStep> expected = {};  // of one run, where the machine's rates are known
  std::vector<double> seconds = {};           // of the runs so far
  std::optional<uint64_t> digest = {};
  double joins_per_step = 0;
};

// The machine's limits as the points need them, each measured once.
class Ceilings {
 public:
  // isa: what the kernels in use need; peaks beyond it are not theirs. Measures the peaks.
  Ceilings(int num_threads, uint32_t isa);
  // Of known peaks and of one bandwidth for every working set: for tests.
  Ceilings(std::vector<cpu::PeakRate> peaks, uint32_t isa, double bandwidth);

  std::span<const cpu::PeakRate> peaks() const { return peaks_; }
  uint32_t isa() const { return isa_; }
  // Bytes per second over a working set, measured to the nearest eighth of a doubling.
  Result<double> bandwidth(size_t working_set);

 private:
  int num_threads_ = 0;
  uint32_t isa_;
  std::vector<cpu::PeakRate> peaks_;
  double known_bandwidth_ = 0;  // 0: measure
  std::map<int, double> bandwidths_;
};

// The instruction sets that any of the matmul rows needs.
uint32_t matmul_isa(const cpu::KernelSet& kernels);

// The points of a plan in its order; chunk: tokens of the largest step.
std::vector<Point> make_points(const StepWork& work, const PointPlan& plan,
                               const Ceilings& ceilings, int64_t chunk);

// Sets what is expected of each point, but for those with adapters.
void expect_points(const ExpectedTimes& times, const PointPlan& plan, int64_t chunk,
                   std::vector<Point>* points);

// All points in turn, again and again: a slow minute of the machine meets every point alike.
// kInternal: a point gave other logits in another repeat, or none that are numbers.
Status time_points(const PointPlan& plan, StepBench& bench, std::vector<Point>* points,
                   const std::function<void(size_t done, size_t total)>& progress);

// Tokens per second: the median of the runs, the slowest, the fastest, and what the limits allow.
struct PointFigures {
  double tokens_per_s = 0, lowest = 0, highest = 0, limit = 0;
  double expected = 0;          // 0: not known
  bool bound_by_memory = true;  // else by arithmetic
  double bandwidth = 0;         // bytes per second that the limit counts with
  double joins_per_layer = 0;
};
// Of a point that was timed.
Result<PointFigures> figures_of(const Point& point, size_t num_layers, Ceilings& ceilings);

}  // namespace headrace
