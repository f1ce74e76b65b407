// StepProfiler: where the time of the next steps goes, part by part and op by op.
//
// One caller at a time asks for steps and takes them; the engine's thread records. While nobody
// asks, a step costs one look at an atomic and no clock. Records change nothing that is computed.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <iterator>
#include <mutex>
#include <string_view>
#include <vector>

#include "backend/op_record.h"
#include "base/result.h"
#include "engine/scheduler.h"

namespace headrace {

// In their order in a step.
enum class StepPart : uint8_t {
  kPlan,     // guesses and the plan
  kBlocks,   // of keys and values: wiped, forked, brought back
  kForward,  // the ops, and what the host does between them
  kDeliver,  // until the helper has handed over the events of the step before
  kSample,   // and scores
  kCommit,
};
inline constexpr std::string_view kStepPartNames[] = {"plan",    "blocks", "forward",
                                                      "deliver", "sample", "commit"};
inline constexpr size_t kNumStepParts = std::size(kStepPartNames);

struct StepProfile {
  uint64_t step_idx = 0;
  int32_t num_tokens = 0;
  int32_t num_prompt_tokens = 0;  // of them, positions inside prompts
  int32_t num_sequences = 0;
  // Nanoseconds of the records' clock. A part begins where the one before ended.
  int64_t start_ns = 0;
  std::array<int64_t, kNumStepParts> part_ends_ns{};
  std::vector<OpRecord> ops;  // within kForward, in order

  int64_t end_ns() const { return part_ends_ns.back(); }
  int64_t part_start_ns(StepPart part) const {
    return part == StepPart::kPlan ? start_ns : part_ends_ns[static_cast<size_t>(part) - 1];
  }
  int64_t part_ns(StepPart part) const {
    return part_ends_ns[static_cast<size_t>(part)] - part_start_ns(part);
  }
};

struct Profile {
  std::vector<StepProfile> steps;
  bool complete = false;  // as many steps as were asked for
};

class StepProfiler {
 public:
  static constexpr int kMaxSteps = 1000;
  static constexpr size_t kMaxOps = 200'000;  // then a profile ends early

  // watch: Backend::watch_ops. clock: nanoseconds, as the back end's records have them.
  explicit StepProfiler(std::function<void(std::vector<OpRecord>*)> watch,
                        int64_t (*clock)() = steady_ns);
  static int64_t steady_ns();

  // Any thread: records the next num_steps steps, 1 to kMaxSteps. kExhausted: another profile is
  // being made.
  Status start(int num_steps);
  // True when all are there, or as many as are kept.
  bool wait(std::chrono::milliseconds patience);
  // Ends what start() began: the steps that are there.
  Profile take();

  // Engine thread. A step without a plan is dropped; of others planned() ends the first part,
  // mark() those between, end_step() the last.
  void begin_step();
  void drop_step();
  void planned(const StepPlan& plan);
  void mark(StepPart part) {
    if (recording_) current_.part_ends_ns[static_cast<size_t>(part)] = clock_();
  }
  void end_step();

 private:
  const std::function<void(std::vector<OpRecord>*)> watch_;
  int64_t (*const clock_)();
  std::atomic<bool> wanted_ = false;

  // Engine thread.
  bool recording_ = false;
  uint64_t recorded_session_ = 0;
  StepProfile current_;

  std::mutex mutex_;  // guards all below
  std::condition_variable done_;
  uint64_t session_ = 0;  // odd: under way
  size_t num_wanted_ = 0;
  size_t num_ops_ = 0;
  Profile profile_;
};

}  // namespace headrace
