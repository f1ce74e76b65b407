// What a profile comes to: steps of prompts and of answers apart, ops of one kind and shape as one
// row. Plain functions and values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_profiler.h"

namespace headrace {

// Seconds that an op must take on this machine; 0: not known. working_set: bytes of its whole step.
using OpLimit = std::function<double(const OpRecord& op, double working_set)>;

// "576 x 1536 q8_0", or "" of an op without a weight: what tells ops of one kind apart.
std::string op_shape(const OpRecord& op);

struct ProfileRow {
  std::string_view op;
  std::string shape;
  int64_t count = 0;
  double seconds = 0;
  double bytes = 0;
  double operations = 0;
  double limit_s = 0;  // 0: not known

  // Of the time, what the machine's limits ask for.
  double share_of_limit() const { return seconds > 0 ? limit_s / seconds : 0; }
};

// Steps of one kind: with tokens of prompts, or of answers alone.
struct ProfilePhase {
  std::string_view name;  // "prompt", "answer"
  int64_t num_steps = 0;
  int64_t num_tokens = 0;
  double seconds = 0;        // of steps, from the plan to the commit
  double waiting_s = 0;      // between each of them and the step before it
  double between_ops_s = 0;  // of the forward pass
  std::array<double, kNumStepParts> part_s{};
  std::vector<ProfileRow> rows;  // the longest first
};

// Phases without steps are left out. limit may be null.
std::vector<ProfilePhase> summarise(const Profile& profile, const OpLimit& limit = nullptr);

}  // namespace headrace
