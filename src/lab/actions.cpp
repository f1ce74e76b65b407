#include "lab/actions.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/quote.h"
#include "base/strings.h"
#include "lab/forms.h"
#include "lab/views.h"

namespace headrace::lab {
namespace {

using boost::json::object;
using boost::json::value;

Error bad_argument(std::string_view name, std::string_view needed, const value* found) {
  Error error = make_error(
      ErrorCode::kInvalidArgument, "{}: {}, and needs {}", name,
      found == nullptr ? "is missing" : "is " + boost::json::serialize(*found).substr(0, 80),
      needed);
  error.param = name;
  return error;
}

Result<int64_t> id_of(const object& arguments, std::string_view name = "id") {
  const value* found = arguments.if_contains(name);
  if (found == nullptr || !found->is_number()) return bad_argument(name, "a whole number", found);
  const double number = found->to_number<double>();
  if (number != std::floor(number) || number < 0 || number > 1e15) {
    return bad_argument(name, "a whole number", found);
  }
  return static_cast<int64_t>(number);
}

Result<std::string> text_of(const object& arguments, std::string_view name) {
  const value* found = arguments.if_contains(name);
  if (found == nullptr || !found->is_string()) return bad_argument(name, "a text", found);
  return std::string(found->get_string());
}

object made(int64_t id) { return {{"id", id}}; }

Result<object> add_hypothesis(Store& store, const object& arguments, std::string_view author) {
  return made(TRY(store.add(TRY(hypothesis_from(arguments)), author)));
}

Result<object> add_experiment(Store& store, const object& arguments, std::string_view author) {
  return made(TRY(store.add(TRY(experiment_from(arguments)), author)));
}

Result<object> add_learning(Store& store, const object& arguments, std::string_view author) {
  return made(TRY(store.add(TRY(learning_from(arguments)), author)));
}

Result<object> overview(Store& store, const object&, std::string_view) {
  boost::json::array hypotheses, experiments, learnings;
  for (const Hypothesis& each : TRY(store.hypotheses())) hypotheses.push_back(to_json(each));
  for (const Experiment& each : TRY(store.experiments())) experiments.push_back(to_json(each));
  for (const Learning& each : TRY(store.learnings())) learnings.push_back(to_json(each));
  return object{{"hypotheses", std::move(hypotheses)},
                {"experiments", std::move(experiments)},
                {"learnings", std::move(learnings)}};
}

Result<object> queue(Store& store, const object&, std::string_view) {
  KnownEffects effects;
  return queue_view(store, effects);
}

Result<object> show(Store& store, const object& arguments, std::string_view) {
  return detail_of(store, TRY(id_of(arguments)));
}

Result<object> show_log(Store& store, const object& arguments, std::string_view) {
  const int64_t after = arguments.contains("after") ? TRY(id_of(arguments, "after")) : 0;
  return log_view(TRY(store.log(after, kMaxLogEntries)));
}

Result<object> conclude(Store& store, const object& arguments, std::string_view author) {
  const int64_t id = TRY(id_of(arguments));
  TRY(store.conclude(id, TRY(text_of(arguments, "state")), TRY(text_of(arguments, "verdict")),
                     author));
  return to_json(TRY(store.hypothesis(id)));
}

template <typename Change>
Result<object> change(Store& store, const object& arguments, Change apply) {
  const int64_t id = TRY(id_of(arguments));
  TRY(apply(id));
  return to_json(TRY(store.experiment(id)));
}

Result<object> pin(Store& store, const object& arguments, std::string_view author) {
  return change(store, arguments, [&](int64_t id) { return store.set_pinned(id, true, author); });
}

Result<object> unpin(Store& store, const object& arguments, std::string_view author) {
  return change(store, arguments, [&](int64_t id) { return store.set_pinned(id, false, author); });
}

Result<object> pause(Store& store, const object& arguments, std::string_view author) {
  return change(store, arguments, [&](int64_t id) { return store.set_paused(id, true, author); });
}

Result<object> resume(Store& store, const object& arguments, std::string_view author) {
  return change(store, arguments, [&](int64_t id) { return store.set_paused(id, false, author); });
}

Result<object> move(Store& store, const object& arguments, std::string_view author) {
  const auto place = static_cast<double>(TRY(id_of(arguments, "place")));
  return change(store, arguments, [&](int64_t id) { return store.set_place(id, place, author); });
}

// What has ended is not cancelled, and what is done may be queued again.
Result<object> cancel(Store& store, const object& arguments, std::string_view author) {
  return change(store, arguments, [&](int64_t id) -> Status {
    const Experiment found = TRY(store.experiment(id));
    if (found.state != "queued" && found.state != "running") {
      return make_error(ErrorCode::kInvalidArgument, "experiment {} is {}, and cannot be cancelled",
                        id, found.state);
    }
    return store.set_state(id, "cancelled", "asked for", author);
  });
}

Result<object> rerun(Store& store, const object& arguments, std::string_view author) {
  return change(store, arguments, [&](int64_t id) -> Status {
    const Experiment found = TRY(store.experiment(id));
    if (found.state == "queued" || found.state == "running") {
      return make_error(ErrorCode::kInvalidArgument, "experiment {} is {} already", id,
                        found.state);
    }
    return store.set_state(id, "queued", "asked for again", author);
  });
}

constexpr std::string_view kNoArguments = R"({"type":"object","properties":{}})";
constexpr std::string_view kId =
    R"({"type":"object","properties":{"id":{"type":"integer","description":"Of an experiment."}},"required":["id"]})";
constexpr std::string_view kHypothesisSchema =
    R"({"type":"object","properties":{"statement":{"type":"string"},"metric":{"type":"string","description":"A name in the JSON that runs print; a.b is b inside a."},"more_is_better":{"type":"boolean"},"predicted":{"type":"number","description":"Relative improvement: 0.1 is 10 %."},"reason":{"type":"string"},"worth":{"type":"number"}},"required":["statement","metric"]})";
constexpr std::string_view kExperimentSchema =
    R"({"type":"object","properties":{"hypothesis":{"type":"integer"},"title":{"type":"string"},"rationale":{"type":"string"},"metric":{"type":"string","description":"Needed without a hypothesis."},"sides":{"type":"array","description":"The first is what the others are compared with.","items":{"type":"object","properties":{"name":{"type":"string"},"command":{"type":"array","items":{"type":"string"}},"hypothesis":{"type":"integer","description":"Of this side beside the first, instead of the experiment's."}},"required":["name","command"]}},"cost_s":{"type":"number","description":"Seconds of a run, estimated."},"max_rounds":{"type":"integer"},"folder":{"type":"string","description":"Inside the laboratory."},"pinned":{"type":"boolean"},"limits":{"type":"object","properties":{"seconds":{"type":"number"},"memory_bytes":{"type":"integer"},"output_bytes":{"type":"integer"}}}},"required":["title","sides"]})";

constexpr Action kActions[] = {
    {"overview", "All hypotheses, experiments and learnings, without runs.", kNoArguments, false,
     overview},
    {"queue", "What runs and what comes next, with the reason of each place.", kNoArguments, false,
     queue},
    {"show", "One experiment with its runs and effects.", kId, false, show},
    {"log", "What happened, in order; at most 1,000 entries.",
     R"({"type":"object","properties":{"after":{"type":"integer","description":"Id of the last entry that is known."}}})",
     false, show_log},
    {"add_hypothesis",
     "A statement about a metric of two configurations, with the predicted effect.",
     kHypothesisSchema, true, add_hypothesis},
    {"add_experiment",
     "Two or more commands that print JSON with the metric; the queue orders itself.",
     kExperimentSchema, true, add_experiment},
    {"add_learning", "A short note drawn from results, with links such as experiment:3.",
     R"({"type":"object","properties":{"text":{"type":"string"},"links":{"type":"array","items":{"type":"string"}}},"required":["text"]})",
     true, add_learning},
    {"conclude", "Sets a hypothesis to validated, ruled out or open, with the evidence.",
     R"({"type":"object","properties":{"id":{"type":"integer"},"state":{"enum":["validated","ruled out","open"]},"verdict":{"type":"string"}},"required":["id","state","verdict"]})",
     true, conclude},
    {"pin", "Puts an experiment before all that are not pinned.", kId, true, pin},
    {"unpin", "Takes that back.", kId, true, unpin},
    {"move", "Puts an experiment at a place before those that nobody moved.",
     R"({"type":"object","properties":{"id":{"type":"integer"},"place":{"type":"integer"}},"required":["id","place"]})",
     true, move},
    {"pause", "Leaves an experiment out until it is resumed; one that runs ends its run first.",
     kId, true, pause},
    {"resume", "Takes that back.", kId, true, resume},
    {"cancel", "Ends an experiment that waits or runs; its runs stay on record.", kId, true,
     cancel},
    {"rerun", "Queues an experiment that has ended once more; new rounds are added.", kId, true,
     rerun},
};

}  // namespace

std::span<const Action> actions() { return kActions; }

Result<object> run_action(Store& store, std::string_view name, const object& arguments,
                          std::string_view author) {
  const auto found = std::find_if(std::begin(kActions), std::end(kActions),
                                  [&](const Action& each) { return each.name == name; });
  if (found != std::end(kActions)) return found->run(store, arguments, author);
  std::string names;
  for (const Action& each : kActions) {
    append_format(names, "{}{}", names.empty() ? "" : ", ", each.name);
  }
  return make_error(ErrorCode::kNotFound, "there is no action {}; the actions are {}", quote(name),
                    names);
}

}  // namespace headrace::lab
