#include "lab/runner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "base/json.h"
#include "base/quote.h"
#include "lab/machine_load.h"

namespace headrace::lab {
namespace {

constexpr int kTries = 3;         // of a run beside which others work
constexpr double kNarrow = 0.02;  // interval at which a measurement without hypothesis ends
constexpr auto kLockPatience = std::chrono::milliseconds(500);
constexpr auto kIdleLook = std::chrono::milliseconds(200);  // 20 ticks of each core

Result<Descriptor> lock_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.ok()) return open_error(path);
  // A process that a killed runner was about to start holds it until it is another program.
  const auto patience = std::chrono::steady_clock::now() + kLockPatience;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    Error error =
        make_error(ErrorCode::kExhausted, "another runner is at work: it holds {}", quote(path));
    error.hint = "wait until it ends; experiments added meanwhile are run by it";
    return error;
  }
  return file;
}

// The rounds that ran begin to count anew after the last one on record.
int64_t next_round(const std::vector<Run>& runs) {
  int64_t next = 0;
  for (const Run& run : runs) next = std::max(next, run.round + 1);
  return next;
}

// What a command printed, if that is JSON, else its last line: programs say other things before.
std::string json_in(const std::string& output) {
  if (parse_json(output, "the output").ok()) return output;
  std::string_view rest(output);
  while (!rest.empty() && (rest.back() == '\n' || rest.back() == '\r')) rest.remove_suffix(1);
  return std::string(rest.substr(rest.rfind('\n') + 1));
}

// The finding itself, or of several how many came out so.
std::string summary_of(const Experiment& experiment, const std::vector<Finding>& findings) {
  if (findings.size() == 1) return findings.front().text;
  const auto count = [&](std::string_view decides) {
    return std::ranges::count_if(findings,
                                 [&](const Finding& each) { return each.decides == decides; });
  };
  return fmt::format("{}: {} validated, {} ruled out, {} undecided", experiment.metric,
                     count("validated"), count("ruled out"), count(""));
}

double mean_seconds(const std::vector<Run>& runs) {
  double seconds = 0;
  int count = 0;
  for (const Run& run : runs) {
    if (run.state != "done") continue;
    seconds += run.seconds;
    ++count;
  }
  return count == 0 ? 0 : seconds / count;
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(Store& store, RunnerOptions options) {
  std::vector<Descriptor> locks;
  const auto own = std::filesystem::path(store.folder()) / "runner.lock";
  locks.push_back(TRY(lock_file(own.string())));
  if (!options.machine_lock.empty()) locks.push_back(TRY(lock_file(options.machine_lock)));
  TRY(store.recover(options.author));
  return std::unique_ptr<Runner>(new Runner(store, std::move(options), std::move(locks)));
}

Runner::Runner(Store& store, RunnerOptions options, std::vector<Descriptor> locks)
    : store_(store), options_(std::move(options)), locks_(std::move(locks)) {}

Result<std::vector<Place>> Runner::order() {
  const auto effects = TRY(effects_.by_hypothesis(store_));
  const auto experiments = TRY(store_.experiments());
  const auto hypotheses = TRY(store_.hypotheses());
  return order_queue(experiments, hypotheses, effects);
}

// A line of the log for each experiment that changed its place among those that still wait.
Status Runner::tell_moves(const std::vector<Place>& order) {
  std::map<int64_t, size_t> places;
  for (size_t i = 0; i < order.size(); ++i) places[order[i].experiment_id] = i + 1;
  size_t num_gone_before = 0;
  std::vector<std::pair<size_t, int64_t>> before;
  for (const auto& [id, place] : places_) before.emplace_back(place, id);
  std::sort(before.begin(), before.end());
  for (const auto& [place, id] : before) {
    const auto now = places.find(id);
    if (now == places.end()) {
      ++num_gone_before;
      continue;
    }
    if (now->second == place - num_gone_before) continue;
    TRY(store_.note(fmt::format("experiment:{}", id),
                    fmt::format("moved from place {} to {}: {}", place, now->second,
                                order[now->second - 1].reason),
                    options_.author));
  }
  places_ = std::move(places);
  return {};
}

Result<int> Runner::run() {
  int num_ended = 0;
  was_idle_ = false;
  while (!stops()) {
    const std::vector<Place> waiting = TRY(order());
    TRY(tell_moves(waiting));
    if (waiting.empty()) break;
    TRY(run_experiment(waiting.front().experiment_id));
    if (!stops()) ++num_ended;
  }
  return num_ended;
}

Status Runner::run_experiment(int64_t id) {
  const Experiment experiment = TRY(store_.experiment(id));
  say(fmt::format("experiment {}: {}", id, experiment.title));
  TRY(store_.set_state(id, "running", "its turn came", options_.author));
  const Status done = run_rounds(experiment);
  if (done.ok()) return {};
  // What is wrong with a side is the experiment's; what is wrong with the store ends the runner.
  if (done.error().code != ErrorCode::kUnprocessable) return done;
  say(fmt::format("experiment {} failed: {}", id, done.error().message));
  return store_.set_state(id, "failed", done.error().message, options_.author);
}

Status Runner::run_rounds(Experiment experiment) {
  const int64_t id = experiment.id;
  const int64_t first = next_round(TRY(store_.runs(id)));
  for (int64_t round = first; round < experiment.max_rounds; ++round) {
    if (!TRY(run_round(experiment, round))) {
      if (!stops()) return {};  // a person cancelled or paused it
      return store_.set_state(id, "queued", "the runner was asked to stop", options_.author);
    }
    const double seconds = mean_seconds(TRY(store_.runs(id)));
    if (round == first) TRY(store_.set_cost(id, std::max(seconds, 0.001), options_.author));
    if (TRY(is_finished(experiment, round + 1))) break;
  }
  return end_experiment(experiment);
}

// False when it is to go no further.
Result<bool> Runner::run_round(const Experiment& experiment, int64_t round) {
  const auto num_sides = std::ssize(experiment.sides);
  std::set<int64_t> finished = TRY(finished_sides(experiment));
  if (finished.size() == questions_of(experiment).size()) finished.clear();  // it runs once more
  for (int64_t i = 0; i < num_sides; ++i) {
    const int64_t side_idx = round % 2 == 0 ? i : num_sides - 1 - i;
    if (finished.contains(side_idx)) continue;
    if (!TRY(run_side(experiment, side_idx, round))) return false;
  }
  return true;
}

Result<bool> Runner::run_side(const Experiment& experiment, int64_t side_idx, int64_t round) {
  int num_failures = 0;
  for (int num_tries = 1;; ++num_tries) {
    const Experiment now = TRY(store_.experiment(experiment.id));
    if (now.state == "running" && now.paused) {
      TRY(store_.set_state(now.id, "queued", "paused", options_.author));
      return false;
    }
    if (now.state != "running" || stops()) return false;
    const Run run = TRY(run_once(experiment, side_idx, round));
    if (run.state == "interrupted") return false;
    if (run.state == "done") return true;
    if (run.state == "failed" && ++num_failures == 2) {
      return make_error(ErrorCode::kUnprocessable, "side {} failed twice: {}",
                        quote(experiment.sides[static_cast<size_t>(side_idx)].name), run.error);
    }
    if (num_tries >= kTries + 1) return true;  // noisy to the end: the round does not count
  }
}

Result<Run> Runner::run_once(const Experiment& experiment, int64_t side_idx, int64_t round) {
  wait_for_idle();
  Run run;
  run.state = "interrupted";
  if (stops()) return run;  // before it began
  run.experiment_id = experiment.id;
  run.side_idx = side_idx;
  run.round = round;
  run.id = TRY(store_.begin_run(run, options_.author));
  MachineLoad load;
  const Result<ProcessResult> result = execute(experiment, run);
  const double others = load.others_share();
  run.machine = machine_json(others);
  if (!result.ok()) {
    run.error = result.error().to_string();
  } else {
    run.seconds = result->seconds;
    run.metrics = json_in(result->output);
    run.error = result->problem;
  }
  if (run.error.empty()) {
    const Result<double> metric = find_metric(run.metrics, experiment.metric);
    if (!metric.ok()) run.error = metric.error().to_string();
  }
  const bool alone = others <= options_.idle_share;
  was_idle_ = alone && run.seconds >= std::chrono::duration<double>(kIdleLook).count();
  if (!result.ok() || !result->was_stopped) {
    run.state = !run.error.empty() ? "failed" : alone ? "done" : "noisy";
  }
  if (run.state == "noisy")
    run.error = fmt::format("others used {:.0f} % of the machine", 100 * others);
  TRY(store_.end_run(run, options_.author));
  return run;
}

Result<ProcessResult> Runner::execute(const Experiment& experiment, const Run& run) const {
  if (options_.execute) return options_.execute(experiment, run);
  const std::string artifacts = TRY(store_.artifacts(run.id));
  std::string folder = artifacts;
  if (!experiment.folder.empty()) {
    folder = (std::filesystem::path(store_.folder()) / experiment.folder).string();
  }
  return run_process(experiment.sides[static_cast<size_t>(run.side_idx)].command, folder,
                     {{"HEADRACE_LAB_ARTIFACTS", artifacts}}, artifacts + "/stderr.txt",
                     experiment.limits, [this] { return stops(); });
}

// What the last run saw is as good as a look of its own.
void Runner::wait_for_idle() {
  if (was_idle_) return;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.idle_patience_s);
  MachineLoad load;
  while (!stops() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kIdleLook);
    if (load.others_share() <= options_.idle_share) return;
  }
}

std::string Runner::machine_json(double others) const {
  boost::json::object machine{{"others_share", others}};
  if (!options_.machine.empty()) machine["machine"] = boost::json::parse(options_.machine);
  return boost::json::serialize(machine);
}

// Of those that have a question: that which is decided, or given up.
Result<std::set<int64_t>> Runner::finished_sides(const Experiment& experiment) {
  const std::vector<Run> runs = TRY(store_.runs(experiment.id));
  std::set<int64_t> finished;
  for (const Question& each : questions_of(experiment)) {
    const Hypothesis about = TRY(store_.hypothesis(each.hypothesis_id));
    const Effect effect =
        effect_of(runs, each.side_idx, about.metric, about.more_is_better, about.predicted);
    const bool given_up = options_.gives_up && options_.gives_up(effect);
    if (effect.verdict != Verdict::kUndecided || given_up) finished.insert(each.side_idx);
  }
  return finished;
}

Result<bool> Runner::is_finished(const Experiment& experiment, int64_t num_rounds) {
  const size_t num_questions = questions_of(experiment).size();
  if (num_questions > 0) return TRY(finished_sides(experiment)).size() == num_questions;
  if (num_rounds < kSureRounds) return false;
  const std::vector<Run> runs = TRY(store_.runs(experiment.id));
  for (int64_t side = 1; side < std::ssize(experiment.sides); ++side) {
    const Effect effect = effect_of(runs, side, experiment.metric, true, 0.1);
    if (effect.num_rounds < kSureRounds || effect.high - effect.low > kNarrow) return false;
  }
  return true;
}

Status Runner::end_experiment(const Experiment& experiment) {
  const std::vector<Run> runs = TRY(store_.runs(experiment.id));
  std::vector<Question> questions = questions_of(experiment);
  if (questions.empty()) questions.emplace_back();
  std::vector<Finding> findings;
  for (const Question& each : questions) {
    Hypothesis about;
    if (each.hypothesis_id != 0) about = TRY(store_.hypothesis(each.hypothesis_id));
    const Effect effect =
        effect_of(runs, each.side_idx, experiment.metric, about.more_is_better, about.predicted);
    const std::string_view decides = effect.verdict == Verdict::kUndecided   ? ""
                                     : effect.verdict == Verdict::kValidated ? "validated"
                                                                             : "ruled out";
    const std::string text =
        fmt::format("{}: {}", experiment.metric, describe(effect, about.predicted));
    findings.push_back({text, each.hypothesis_id, std::string(decides)});
    const std::string& side = experiment.sides[static_cast<size_t>(each.side_idx)].name;
    say(fmt::format("experiment {}: {}{}", experiment.id, questions.size() > 1 ? side + ": " : "",
                    text));
  }
  const std::string found = summary_of(experiment, findings);
  return store_.finish(experiment.id, found, findings, options_.author);
}

}  // namespace headrace::lab
