#include "engine/profile_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace headrace {
namespace {

double seconds_of(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// Gathers the rows of one phase.
class PhaseSum {
 public:
  PhaseSum(std::string_view name, const OpLimit& limit) : limit_(limit) { phase_.name = name; }

  void add(const StepProfile& step, int64_t waited_ns) {
    ++phase_.num_steps;
    phase_.num_tokens += step.num_tokens;
    phase_.seconds += seconds_of(step.end_ns() - step.start_ns);
    phase_.waiting_s += seconds_of(waited_ns);
    for (size_t i = 0; i < kNumStepParts; ++i) {
      phase_.part_s[i] += seconds_of(step.part_ns(static_cast<StepPart>(i)));
    }
    double working_set = 0;
    for (const OpRecord& op : step.ops) working_set += op.bytes;
    int64_t in_ops_ns = 0;
    for (const OpRecord& op : step.ops) {
      add(op, working_set);
      in_ops_ns += op.end_ns - op.start_ns;
    }
    phase_.between_ops_s += seconds_of(step.part_ns(StepPart::kForward) - in_ops_ns);
  }

  ProfilePhase finish() {
    for (auto& [key, row] : rows_) phase_.rows.push_back(std::move(row));
    // Equal ones in the order of their names.
    std::ranges::sort(phase_.rows, [](const ProfileRow& a, const ProfileRow& b) {
      return std::tie(b.seconds, a.op, a.shape) < std::tie(a.seconds, b.op, b.shape);
    });
    return std::move(phase_);
  }

 private:
  using Key = std::tuple<OpKind, int64_t, int64_t, std::string_view>;

  void add(const OpRecord& op, double working_set) {
    ProfileRow& row = rows_[Key{op.kind, op.num_outputs, op.num_inputs, op.layout}];
    if (row.count++ == 0) {
      row.op = kOpNames[static_cast<size_t>(op.kind)];
      row.shape = op_shape(op);
    }
    row.seconds += seconds_of(op.end_ns - op.start_ns);
    row.bytes += op.bytes;
    row.operations += op.operations;
    if (limit_ != nullptr) row.limit_s += limit_(op, working_set);
  }

  const OpLimit& limit_;
  ProfilePhase phase_;
  std::map<Key, ProfileRow> rows_;
};

}  // namespace

std::string op_shape(const OpRecord& op) {
  if (op.num_inputs == 0) return {};
  return fmt::format("{} x {} {}", op.num_outputs, op.num_inputs, op.layout);
}

std::vector<ProfilePhase> summarise(const Profile& profile, const OpLimit& limit) {
  PhaseSum prompt("prompt", limit), answer("answer", limit);
  int64_t last_end_ns = profile.steps.empty() ? 0 : profile.steps.front().start_ns;
  for (const StepProfile& step : profile.steps) {
    PhaseSum& phase = step.num_prompt_tokens > 0 ? prompt : answer;
    phase.add(step, step.start_ns - last_end_ns);
    last_end_ns = step.end_ns();
  }
  std::vector<ProfilePhase> phases;
  for (PhaseSum* phase : {&prompt, &answer}) {
    phases.push_back(phase->finish());
    if (phases.back().num_steps == 0) phases.pop_back();
  }
  return phases;
}

}  // namespace headrace
