#include "cli/lab_tune.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
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

std::vector<std::string> step_points(const char* prefill, const char* batch) {
  return {"--repeats", "1", "--prefill", prefill, "--depth", "", "--batch", batch};
}

// A few answers, one after the other: the load that `bench serve` makes by itself.
std::vector<std::string> answer_points() {
  return {"--load", "sync", "--requests",      "4",   "--warmup",        "0",
          "--seed", "1",    "--prompt-tokens", "256", "--answer-tokens", "128"};
}

// The recording's requests in its order, whatever their times.
std::vector<std::string> recorded_points(const std::string& trace) {
  return {"--load", "sync", "--trace", trace};
}

const std::vector<TuneGoal>& goals() {
  static const std::vector<TuneGoal> kGoals = {
      {"ttft", "tok_s", true, 0.03, "step", step_points("512", "")},
      {"throughput", "tok_s", true, 0.03, "step", step_points("", "16")},
      {"answers", "stages.0.output_tokens_per_s.value", true, 0.03, "serve", answer_points()},
      {"memory", "resident_bytes", false, 0.01, "step", step_points("", "")},
      {"start", "load_s", false, 0.1, "step", step_points("", "")},
  };
  return kGoals;
}

// `headrace bench` with further options: a side of an experiment.
std::vector<std::string> side_command(const TuneGoal& goal, const std::string& model,
                                      std::span<const TuneCandidate> with) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "bench",
                                      std::string(goal.bench),
                                      model,
                                      "--json",
                                      "--bare"};
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
  return names.empty() ? "defaults" : names;
}

std::vector<TuneCandidate> settings_of(std::span<const TuneResult> chosen) {
  std::vector<TuneCandidate> settings;
  for (const TuneResult& each : chosen) settings.push_back(each.candidate);
  return settings;
}

std::string_view verdict_on(const lab::Effect& effect) {
  if (effect.verdict == lab::Verdict::kValidated) return "validated";
  if (effect.verdict == lab::Verdict::kRuledOut) return "ruled out";
  return leans_against(effect) ? "given up" : "undecided";
}

std::string comment_on(const TuneGoal& goal, const TuneResult& result) {
  return fmt::format("# {} = {}: {}, {}{}\n", result.candidate.option.substr(2),
                     result.candidate.value, verdict_on(result.effect),
                     lab::describe(result.effect, goal.predicted),
                     result.candidate.changes_answers ? "; changes the bits of answers" : "");
}

// A number stays one in the file, anything else is a text.
std::string as_toml(const std::string& value) {
  const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? value : "\"" + value + "\"";
}

// One search: its races go through the same queue as all other experiments.
class Search {
 public:
  Search(lab::Store& store, lab::Runner& runner, const TuneRequest& request)
      : store_(store), runner_(runner), request_(request) {}

  Result<Tuned> run() {
    std::map<int, std::vector<TuneCandidate>> turns;
    for (const TuneCandidate& each : request_.candidates) turns[each.turn].push_back(each);
    std::vector<TuneCandidate> left;  // won as well in the last race
    while (!turns.empty() || !left.empty()) {
      if (!turns.empty()) {
        const auto next = turns.extract(turns.begin());
        left.insert(left.end(), next.mapped().begin(), next.mapped().end());
      }
      const std::vector<TuneResult> won = winners(TRY(race(left)));
      if (is_stopped_) break;
      left.clear();
      if (won.empty()) continue;
      tuned_.chosen.push_back(won.front());
      for (const TuneResult& each : std::span(won).subspan(1)) left.push_back(each.candidate);
    }
    return std::move(tuned_);
  }

 private:
  // One experiment, so that all are beside the same runs of what was chosen so far.
  Result<std::vector<TuneResult>> race(std::span<const TuneCandidate> candidates) {
    const std::vector<TuneCandidate> beside = settings_of(tuned_.chosen);
    lab::Experiment made;
    made.max_rounds = request_.max_rounds;
    made.title = fmt::format("{} beside {} changes", names_of(beside), candidates.size());
    made.rationale = "each option by itself, on top of what was chosen so far";
    made.sides = {{names_of(beside), command(beside)}};
    for (const TuneCandidate& each : candidates) {
      std::vector<TuneCandidate> with = beside;
      with.push_back(each);
      made.sides.push_back(
          {names_of({&each, 1}), command(with), TRY(state_hypothesis(each, beside))});
    }
    const int64_t id = TRY(store_.add(made, request_.author));
    TRY(runner_.run());
    is_stopped_ = TRY(store_.experiment(id)).state == "queued";
    return results_of(id, candidates, beside);
  }

  Result<std::vector<TuneResult>> results_of(int64_t experiment_id,
                                             std::span<const TuneCandidate> candidates,
                                             const std::vector<TuneCandidate>& beside) {
    const TuneGoal& goal = request_.goal;
    const std::vector<lab::Run> runs = TRY(store_.runs(experiment_id));
    std::vector<TuneResult> results;
    for (const TuneCandidate& each : candidates) {
      results.push_back({each, beside,
                         lab::effect_of(runs, std::ssize(results) + 1, goal.metric,
                                        goal.more_is_better, goal.predicted)});
    }
    tuned_.tried.insert(tuned_.tried.end(), results.begin(), results.end());
    const bool ran = std::ranges::any_of(
        tuned_.tried, [](const TuneResult& each) { return each.effect.num_rounds > 0; });
    if (ran) return results;
    return make_error(ErrorCode::kUnprocessable, "no experiment of the tuning could be run: {}",
                      TRY(store_.experiment(experiment_id)).state_reason);
  }

  std::vector<std::string> command(std::span<const TuneCandidate> with) const {
    return side_command(request_.goal, request_.model, with);
  }

  Result<int64_t> state_hypothesis(const TuneCandidate& candidate,
                                   std::span<const TuneCandidate> beside) {
    lab::Hypothesis about;
    about.statement = fmt::format("{} improves {} of {} beside {}", names_of({&candidate, 1}),
                                  request_.goal.name, request_.model, names_of(beside));
    about.metric = std::string(request_.goal.metric);
    about.more_is_better = request_.goal.more_is_better;
    about.predicted = request_.goal.predicted;
    about.reason = candidate.reason;
    return store_.add(about, request_.author);
  }

  lab::Store& store_;
  lab::Runner& runner_;
  const TuneRequest& request_;
  Tuned tuned_;
  bool is_stopped_ = false;
};

Status write_settings(const TuneRequest& request, const Tuned& tuned, lab::Store& store) {
  const auto path =
      std::filesystem::path(store.folder()) / fmt::format("tuned-{}.toml", request.goal.name);
  const std::string text = tuned_settings(request.goal, request.model, tuned);
  std::ofstream(path) << text;
  std::printf("%s", text.c_str());
  std::fprintf(stderr, "written to %s; use it with HEADRACE_CONFIG\n", path.c_str());
  return store.note("tune", fmt::format("{}: recommends {}", request.goal.name, path.string()),
                    request.author);
}

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

namespace {

// Beside the default, which guesses from the text and by a head of the model.
void add_speculation(const TuneMeans& means, int turn, std::vector<TuneCandidate>* all) {
  all->push_back(
      {"--speculation", "off", "guesses of these texts may not be worth their rows", false, turn});
  if (means.draft_model.empty()) return;
  all->push_back({"--draft-model", means.draft_model, "a smaller model may guess what texts do not",
                  false, turn});
}

}  // namespace

std::vector<TuneCandidate> tune_candidates(std::string_view goal, const TuneMeans& means) {
  if (goal == "start") {
    return {{"--weight-cache", means.cache_folder, "packed weights are read, not made", false}};
  }
  const bool is_memory = goal == "memory";
  const int after = is_memory ? 0 : 1;  // of what changes speed by far more
  std::vector<TuneCandidate> all = {
      {"--kv-type", "fp8", "half the bytes of keys and values", true, after},
      {"--kv-type", "int8", "half the bytes of keys and values", true, after},
  };
  if (is_memory) {
    all.push_back({"--batch-tokens", "128", "a smaller workspace", false});
    return all;
  }
  all.push_back({"--activations", "fast", "fewer operations for each weight", true});
  for (int threads = 1; threads < means.num_threads; threads *= 2) {
    all.push_back({"--threads", std::to_string(threads),
                   "fewer threads where memory or a shared core is what limits", false});
  }
  // The prompt of the goal is one step by default, and so it is with more tokens a step.
  if (goal == "ttft") {
    all.push_back({"--batch-tokens", "256", "chunks that stay in the caches", false, after});
  }
  if (goal == "answers") add_speculation(means, after, &all);
  return all;
}

std::vector<TuneResult> winners(std::span<const TuneResult> race) {
  std::map<std::string, const TuneResult*> best;
  for (const TuneResult& each : race) {
    if (each.effect.verdict != lab::Verdict::kValidated) continue;
    const TuneResult*& known = best[each.candidate.option];
    if (known == nullptr || each.effect.improvement > known->effect.improvement) known = &each;
  }
  std::vector<TuneResult> found;
  for (const auto& [option, result] : best) found.push_back(*result);
  std::ranges::sort(found, std::ranges::greater{},
                    [](const TuneResult& each) { return each.effect.improvement; });
  return found;
}

bool leans_against(const lab::Effect& effect) {
  constexpr double kStep = 0.3;  // of the logarithm, that a further round must bring
  const double first = -std::log(2.0);
  return effect.num_rounds >= lab::kMinRounds &&
         effect.log_ratio <= first + kStep * (effect.num_rounds - lab::kMinRounds);
}

Result<Tuned> search_options(lab::Store& store, lab::Runner& runner, const TuneRequest& request) {
  return Search(store, runner, request).run();
}

std::string tuned_settings(const TuneGoal& goal, const std::string& model, const Tuned& tuned) {
  std::string text =
      fmt::format("# Recommended for {} of {} by headrace lab tune.\n", goal.name, model);
  double together = 1;
  for (const TuneResult& each : tuned.chosen) together *= 1 + each.effect.improvement;
  if (tuned.chosen.empty()) text += "# The defaults: nothing that was tried is better.\n";
  if (tuned.chosen.size() > 1) {
    append_format(text, "# Together {:.1f} % better, each on top of those before it.\n",
                  100 * (together - 1));
  }
  for (const TuneResult& each : tuned.chosen) {
    append_format(text, "{} = {}\n", each.candidate.option.substr(2),
                  as_toml(each.candidate.value));
  }
  std::string beside;
  for (const TuneResult& each : tuned.tried) {
    const std::string now = names_of(each.beside);
    if (now != beside) append_format(text, "\n# What was tried beside {}:\n", now);
    beside = now;
    text += comment_on(goal, each);
  }
  return text;
}

namespace {

// Runs have folders of their own, so files are named by whole paths.
std::string whole_path(const std::string& path) {
  return std::filesystem::exists(path) ? std::filesystem::absolute(path).string() : path;
}

Status take_recording(const Options& options, TuneGoal* goal) {
  const bool has_texts = options.is_typed("--trace") || options.is_typed("--draft-model");
  if (goal->name != "answers" && has_texts) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the goal {} computes random tokens: --trace and --draft-model are for "
                      "--goal answers",
                      goal->name);
  }
  const std::string& trace = options.text("--trace");
  if (!trace.empty()) goal->points = recorded_points(whole_path(trace));
  return {};
}

}  // namespace

Result<int> tune(const Options& options, lab::Store& store, const std::string& model,
                 const std::string& author) {
  TuneRequest request{TRY(find_goal(options.text("--goal"))),
                      whole_path(model),
                      {},
                      static_cast<int>(options.integer("--rounds")),
                      author};
  TRY(take_recording(options, &request.goal));
  const auto folder = std::filesystem::absolute(store.folder()) / "packed-weights";
  request.candidates =
      tune_candidates(request.goal.name, {cpu::describe_machine().num_usable, folder.string(),
                                          whole_path(options.text("--draft-model"))});
  const InterruptGuard interrupt(/*hang_up_too=*/true);
  lab::RunnerOptions with =
      runner_options(options, author, [&] { return interrupt.signal() != 0; });
  with.gives_up = leans_against;
  const auto runner = TRY(lab::Runner::create(store, std::move(with)));
  const Result<Tuned> tuned = search_options(store, *runner, request);
  if (interrupt.signal() != 0) return 128 + interrupt.signal();
  if (!tuned.ok()) return tuned.error();
  TRY(write_settings(request, *tuned, store));
  return 0;
}

}  // namespace headrace
