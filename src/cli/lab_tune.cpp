#include "cli/lab_tune.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/quote.h"
#include "base/strings.h"
#include "bench/machine.h"
#include "build_info.h"
#include "cli/generate.h"
#include "lab/evidence.h"
#include "lab/machine_view.h"

namespace headrace {
namespace {

const std::vector<TuneGoal>& goals() {
  static const std::vector<TuneGoal> kGoals = {
      {"ttft", "tok_s", true, 0.03, {"--prefill", "512", "--depth", "", "--batch", ""}},
      {"throughput", "tok_s", true, 0.03, {"--prefill", "", "--depth", "", "--batch", "16"}},
      {"memory", "resident_bytes", false, 0.01, {"--prefill", "", "--depth", "", "--batch", ""}},
      {"start", "load_s", false, 0.1, {"--prefill", "", "--depth", "", "--batch", ""}},
  };
  return kGoals;
}

// `headrace bench step` with further options: a side of an experiment.
std::vector<std::string> side_command(const TuneGoal& goal, const std::string& model,
                                      std::span<const TuneCandidate> with) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "bench",
                                      "step",
                                      model,
                                      "--json",
                                      "--bare",
                                      "--repeats",
                                      "1"};
  command.insert(command.end(), goal.points.begin(), goal.points.end());
  for (const TuneCandidate& each : with) {
    command.push_back(each.option);
    command.push_back(each.value);
  }
  return command;
}

std::string names_of(std::span<const TuneCandidate> with) {
  std::string names;
  for (const TuneCandidate& each : with) {
    append_format(names, "{}{} {}", names.empty() ? "" : " ", each.option, each.value);
  }
  return names;
}

Result<lab::Effect> effect_on_record(lab::Store& store, int64_t experiment_id, int64_t side_idx) {
  const lab::Experiment experiment = TRY(store.experiment(experiment_id));
  const lab::Hypothesis about =
      TRY(store.hypothesis(lab::hypothesis_of_side(experiment, side_idx)));
  const std::vector<lab::Run> runs = TRY(store.runs(experiment_id));
  return lab::effect_of(runs, side_idx, about.metric, about.more_is_better, about.predicted);
}

std::string comment_on(const TuneGoal& goal, const TuneResult& result) {
  constexpr std::string_view kVerdicts[] = {"undecided", "validated", "ruled out"};
  return fmt::format("# {} = {}: {}, {}{}\n", result.candidate.option.substr(2),
                     result.candidate.value, kVerdicts[static_cast<size_t>(result.effect.verdict)],
                     lab::describe(result.effect, goal.predicted),
                     result.candidate.changes_answers ? "; changes the bits of answers" : "");
}

// A number stays one in the file, anything else is a text.
std::string as_toml(const std::string& value) {
  const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? value : "\"" + value + "\"";
}

// Experiments of one tuning, run through the same queue as all others.
class Tuning {
 public:
  Tuning(lab::Store& store, lab::Runner& runner, TuneGoal goal, std::string model, int max_rounds,
         std::string author)
      : store_(store),
        runner_(runner),
        goal_(std::move(goal)),
        model_(std::move(model)),
        max_rounds_(max_rounds),
        author_(std::move(author)) {}

  // One experiment, so that all are beside the same runs of the defaults.
  Status try_each(std::span<const TuneCandidate> candidates) {
    lab::Experiment made = experiment();
    made.title = fmt::format("defaults beside {} changes", candidates.size());
    made.rationale = "each option by itself";
    for (const TuneCandidate& each : candidates) {
      const std::span<const TuneCandidate> alone(&each, 1);
      made.sides.push_back({names_of(alone), side_command(goal_, model_, alone),
                            TRY(state_hypothesis(alone, each.reason))});
    }
    const int64_t id = TRY(store_.add(made, author_));
    TRY(runner_.run());
    for (size_t i = 0; i < candidates.size(); ++i) {
      results_.push_back(
          {candidates[i], TRY(effect_on_record(store_, id, static_cast<int64_t>(i) + 1))});
    }
    const bool ran = std::any_of(results_.begin(), results_.end(),
                                 [](const TuneResult& each) { return each.effect.num_rounds > 0; });
    if (ran) return {};
    return make_error(ErrorCode::kUnprocessable, "no experiment of the tuning could be run: {}",
                      TRY(store_.experiment(id)).state_reason);
  }

  // The winners together: effects of options need not add up.
  Status try_together() {
    std::vector<TuneCandidate> with;
    for (const TuneResult& each : winners(results_)) with.push_back(each.candidate);
    if (with.size() < 2) return {};
    const std::string reason = "each of them helps alone";
    lab::Experiment made = experiment();
    made.title = fmt::format("defaults beside {}", names_of(with));
    made.rationale = reason;
    made.sides.push_back(
        {names_of(with), side_command(goal_, model_, with), TRY(state_hypothesis(with, reason))});
    const int64_t id = TRY(store_.add(made, author_));
    TRY(runner_.run());
    whole_ = TRY(effect_on_record(store_, id, 1));
    return {};
  }

  Status write() const {
    const auto path =
        std::filesystem::path(store_.folder()) / fmt::format("tuned-{}.toml", goal_.name);
    const std::string text = tuned_settings(goal_, model_, results_, whole_ ? &*whole_ : nullptr);
    std::ofstream(path) << text;
    std::printf("%s", text.c_str());
    std::fprintf(stderr, "written to %s; use it with HEADRACE_CONFIG\n", path.c_str());
    return store_.note("tune", fmt::format("{}: recommends {}", goal_.name, path.string()),
                       author_);
  }

 private:
  // With the defaults as its first side.
  lab::Experiment experiment() const {
    lab::Experiment made;
    made.max_rounds = max_rounds_;
    made.sides = {{"defaults", side_command(goal_, model_, {})}};
    return made;
  }
  // That these options help.
  Result<int64_t> state_hypothesis(std::span<const TuneCandidate> with, const std::string& reason) {
    lab::Hypothesis about;
    about.statement = fmt::format("{} improves {} of {}", names_of(with), goal_.name, model_);
    about.metric = std::string(goal_.metric);
    about.more_is_better = goal_.more_is_better;
    about.predicted = goal_.predicted;
    about.reason = reason;
    return store_.add(about, author_);
  }

  lab::Store& store_;
  lab::Runner& runner_;
  const TuneGoal goal_;
  const std::string model_;
  const int max_rounds_;
  const std::string author_;
  std::vector<TuneResult> results_;
  std::optional<lab::Effect> whole_;
};

}  // namespace

lab::RunnerOptions runner_options(const Options& options, const std::string& author,
                                  std::function<bool()> stops) {
  lab::RunnerOptions runner;
  runner.author = author;
  runner.machine_lock =
      (std::filesystem::temp_directory_path() / "headrace-lab-runner.lock").string();
  const cpu::MachineInfo machine = cpu::describe_machine();
  runner.machine = boost::json::serialize(
      boost::json::object{{"processor", machine.processor},
                          {"cores", machine.num_usable},
                          {"memory_bytes", machine.memory_bytes},
                          {"read_limit_byte_s", lab::measured_read_rate(options.text("--lab"))},
                          {"commit", HEADRACE_COMMIT}});
  runner.idle_patience_s = static_cast<double>(options.integer("--idle-patience"));
  runner.idle_share = options.number("--idle-share");
  runner.stops = std::move(stops);
  runner.report = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return runner;
}

Result<TuneGoal> find_goal(std::string_view name) {
  std::string names;
  for (const TuneGoal& goal : goals()) {
    if (goal.name == name) return goal;
    append_format(names, "{}{}", names.empty() ? "" : ", ", goal.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "there is no goal {}; the goals are {}",
                    quote(name), names);
}

std::vector<TuneCandidate> tune_candidates(std::string_view goal, int num_threads,
                                           const std::string& cache_folder) {
  if (goal == "start") {
    return {{"--weight-cache", cache_folder, "packed weights are read, not made", false}};
  }
  std::vector<TuneCandidate> all = {
      {"--kv-type", "fp8", "half the bytes of keys and values", true},
      {"--kv-type", "int8", "half the bytes of keys and values", true},
  };
  if (goal == "memory") {
    all.push_back({"--batch-tokens", "128", "a smaller workspace", false});
    return all;
  }
  all.push_back({"--activations", "int8", "one product for each weight instead of two", true});
  for (int threads = 1; threads < num_threads; threads *= 2) {
    all.push_back({"--threads", std::to_string(threads),
                   "fewer threads where memory or a shared core is what limits", false});
  }
  if (goal == "ttft") {
    all.push_back({"--batch-tokens", "256", "chunks that stay in the caches", false});
    all.push_back({"--batch-tokens", "1024", "weights are read less often for a prompt", false});
  }
  return all;
}

std::vector<TuneResult> winners(std::span<const TuneResult> results) {
  std::map<std::string, const TuneResult*> best;
  for (const TuneResult& each : results) {
    if (each.effect.verdict != lab::Verdict::kValidated) continue;
    const TuneResult*& known = best[each.candidate.option];
    if (known == nullptr || each.effect.improvement > known->effect.improvement) known = &each;
  }
  std::vector<TuneResult> found;
  for (const auto& [option, result] : best) found.push_back(*result);
  return found;
}

std::string tuned_settings(const TuneGoal& goal, const std::string& model,
                           std::span<const TuneResult> results, const lab::Effect* whole) {
  std::vector<TuneResult> chosen = winners(results);
  const auto best =
      std::max_element(chosen.begin(), chosen.end(), [](const TuneResult& a, const TuneResult& b) {
        return a.effect.improvement < b.effect.improvement;
      });
  std::string text =
      fmt::format("# Recommended for {} of {} by headrace lab tune.\n", goal.name, model);
  if (whole != nullptr) {
    append_format(text, "# Together: {}\n", lab::describe(*whole, goal.predicted));
    // Together they may be worse than the best of them alone.
    if (whole->improvement < best->effect.improvement) chosen = {*best};
  }
  if (chosen.empty()) text += "# The defaults: nothing that was tried is better.\n";
  for (const TuneResult& each : chosen) {
    append_format(text, "{} = {}\n", each.candidate.option.substr(2),
                  as_toml(each.candidate.value));
  }
  text += "\n# What was tried, beside the defaults:\n";
  for (const TuneResult& each : results) text += comment_on(goal, each);
  return text;
}

Result<int> tune(const Options& options, lab::Store& store, const std::string& model,
                 const std::string& author) {
  const TuneGoal goal = TRY(find_goal(options.text("--goal")));
  const InterruptGuard interrupt;
  const auto stopped = [&] { return interrupt.signal() != 0; };
  const auto runner = TRY(lab::Runner::create(store, runner_options(options, author, stopped)));
  Tuning tuning(store, *runner, goal, model, static_cast<int>(options.integer("--rounds")), author);
  const std::string cache_folder =
      (std::filesystem::absolute(store.folder()) / "packed-weights").string();
  const Status tried =
      tuning.try_each(tune_candidates(goal.name, cpu::describe_machine().num_usable, cache_folder));
  if (!tried.ok() && !stopped()) return tried.error();
  if (!stopped()) TRY(tuning.try_together());
  if (stopped()) return 128 + interrupt.signal();
  TRY(tuning.write());
  return 0;
}

}  // namespace headrace
