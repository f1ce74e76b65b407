#include "lab/forms.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/quote.h"
#include "base/strings.h"

namespace headrace::lab {
namespace {

using boost::json::object;
using boost::json::value;

Error wrong_field(std::string_view field, std::string_view needed, const value& found) {
  Error error = make_error(ErrorCode::kInvalidArgument, "{}: is {}, and needs {}", field,
                           boost::json::serialize(found).substr(0, 80), needed);
  error.param = field;
  return error;
}

// Takes the members of a form one after the other; what nobody took is unknown.
class FormReader {
 public:
  static Result<FormReader> create(const value& form, std::string_view what) {
    if (form.is_object()) return FormReader(form.get_object(), std::string(what));
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, and must be an object", what,
                      boost::json::serialize(form).substr(0, 80));
  }

  Status take(std::string_view name, std::string* into, bool is_needed = false) {
    const value* found = TRY(find(name, is_needed));
    if (found == nullptr) return {};
    if (!found->is_string()) return wrong_field(name, "a text", *found);
    *into = std::string(found->get_string());
    return {};
  }
  Status take(std::string_view name, double* into) {
    const value* found = TRY(find(name, false));
    if (found == nullptr) return {};
    if (!found->is_number()) return wrong_field(name, "a number", *found);
    *into = found->to_number<double>();
    return {};
  }
  Status take(std::string_view name, int64_t* into) {
    double number = static_cast<double>(*into);
    TRY(take(name, &number));
    if (number != std::floor(number) || std::abs(number) > 1e15) {
      return wrong_field(name, "a whole number", number);
    }
    *into = static_cast<int64_t>(number);
    return {};
  }
  Status take(std::string_view name, bool* into) {
    const value* found = TRY(find(name, false));
    if (found == nullptr) return {};
    if (!found->is_bool()) return wrong_field(name, "true or false", *found);
    *into = found->get_bool();
    return {};
  }
  Status take(std::string_view name, std::vector<std::string>* into) {
    const value* found = TRY(find(name, false));
    if (found == nullptr) return {};
    if (!found->is_array()) return wrong_field(name, "a list of texts", *found);
    for (const value& each : found->get_array()) {
      if (!each.is_string()) return wrong_field(name, "a list of texts", *found);
      into->emplace_back(each.get_string());
    }
    return {};
  }
  Result<const value*> find(std::string_view name, bool is_needed) {
    taken_.insert(std::string(name));
    const value* found = form_.if_contains(name);
    if (found == nullptr && is_needed) {
      Error error =
          make_error(ErrorCode::kInvalidArgument, "{} needs the field {}", what_, quote(name));
      error.param = name;
      return error;
    }
    return found;
  }
  // Names the first field that was not taken.
  Status finish() const {
    for (const auto& member : form_) {
      if (taken_.contains(member.key())) continue;
      std::string known;
      for (const std::string& name : taken_) known += (known.empty() ? "" : ", ") + name;
      Error error = make_error(ErrorCode::kInvalidArgument, "{} has no field {}; it has {}", what_,
                               quote(member.key()), known);
      error.param = member.key();
      return error;
    }
    return {};
  }

 private:
  FormReader(const object& form, std::string what) : form_(form), what_(std::move(what)) {}
  const object& form_;
  const std::string what_;
  std::set<std::string, std::less<>> taken_;
};

boost::json::array texts_json(const std::vector<std::string>& texts) {
  boost::json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

Result<Side> side_from(const value& form) {
  FormReader reader = TRY(FormReader::create(form, "a side"));
  Side side;
  TRY(reader.take("name", &side.name, true));
  TRY(reader.take("command", &side.command));
  TRY(reader.take("hypothesis", &side.hypothesis_id));
  TRY(reader.finish());
  return side;
}

Result<std::vector<Side>> sides_from(const value& form) {
  if (!form.is_array()) return wrong_field("sides", "a list of {name, command}", form);
  std::vector<Side> sides;
  for (const value& each : form.get_array()) sides.push_back(TRY(side_from(each)));
  return sides;
}

Result<Limits> limits_from(const value& form) {
  FormReader reader = TRY(FormReader::create(form, "limits"));
  Limits limits;
  TRY(reader.take("seconds", &limits.seconds));
  TRY(reader.take("memory_bytes", &limits.memory_bytes));
  TRY(reader.take("output_bytes", &limits.output_bytes));
  TRY(reader.finish());
  return limits;
}

value parsed_or_text(const std::string& json) {
  boost::json::error_code failed;
  value parsed = boost::json::parse(json, failed);
  return failed ? value(json) : parsed;
}

Effect side_effect(const Experiment& experiment, const std::vector<Run>& runs,
                   const Hypothesis& about, int64_t side) {
  return effect_of(runs, side, experiment.metric, about.more_is_better, about.predicted);
}

Status append_experiment(Store& store, const Experiment& experiment, std::string* page) {
  const std::vector<Run> runs = TRY(store.runs(experiment.id));
  append_format(*page, "- **{}. {}** ({}): {}\n", experiment.id, experiment.title, experiment.state,
                experiment.state_reason);
  if (!experiment.rationale.empty()) append_format(*page, "  {}\n", experiment.rationale);
  for (int64_t side = 1; side < std::ssize(experiment.sides); ++side) {
    const Hypothesis about = TRY(about_side(store, experiment, side));
    const Effect effect = side_effect(experiment, runs, about, side);
    append_format(*page, "  - {} beside {}: {}\n", experiment.sides[static_cast<size_t>(side)].name,
                  experiment.sides[0].name, describe(effect, about.predicted));
  }
  return {};
}

}  // namespace

Result<Hypothesis> about_side(Store& store, const Experiment& experiment, int64_t side_idx) {
  const int64_t id = hypothesis_of_side(experiment, side_idx);
  return id != 0 ? store.hypothesis(id) : Hypothesis();
}

object to_json(const Hypothesis& made) {
  return {{"id", made.id},
          {"statement", made.statement},
          {"metric", made.metric},
          {"more_is_better", made.more_is_better},
          {"predicted", made.predicted},
          {"reason", made.reason},
          {"worth", made.worth},
          {"state", made.state},
          {"verdict", made.verdict},
          {"author", made.author},
          {"made_ms", made.made_ms}};
}

object to_json(const Experiment& made) {
  boost::json::array sides;
  for (const Side& side : made.sides) {
    object row{{"name", side.name}, {"command", texts_json(side.command)}};
    if (side.hypothesis_id != 0) row["hypothesis"] = side.hypothesis_id;
    sides.push_back(std::move(row));
  }
  return {{"id", made.id},
          {"hypothesis", made.hypothesis_id == 0 ? value() : value(made.hypothesis_id)},
          {"title", made.title},
          {"rationale", made.rationale},
          {"metric", made.metric},
          {"sides", std::move(sides)},
          {"cost_s", made.cost_s},
          {"max_rounds", made.max_rounds},
          {"limits", object{{"seconds", made.limits.seconds},
                            {"memory_bytes", made.limits.memory_bytes},
                            {"output_bytes", made.limits.output_bytes}}},
          {"folder", made.folder},
          {"state", made.state},
          {"state_reason", made.state_reason},
          {"pinned", made.pinned},
          {"paused", made.paused},
          {"place", made.place ? value(*made.place) : value()},
          {"author", made.author},
          {"made_ms", made.made_ms}};
}

object to_json(const Run& run) {
  return {{"id", run.id},
          {"side", run.side_idx},
          {"round", run.round},
          {"state", run.state},
          {"metrics", parsed_or_text(run.metrics)},
          {"machine", parsed_or_text(run.machine)},
          {"error", run.error},
          {"seconds", run.seconds},
          {"started_ms", run.started_ms}};
}

object to_json(const Learning& made) {
  return {{"id", made.id},
          {"text", made.text},
          {"links", texts_json(made.links)},
          {"author", made.author},
          {"made_ms", made.made_ms}};
}

object to_json(const LogEntry& entry) {
  return {{"id", entry.id},
          {"at_ms", entry.at_ms},
          {"author", entry.author},
          {"subject", entry.subject},
          {"text", entry.text}};
}

object to_json(const Effect& effect) {
  constexpr std::string_view kNames[] = {"undecided", "validated", "ruled out"};
  return {{"rounds", effect.num_rounds},
          {"improvement", effect.improvement},
          {"low", effect.low},
          {"high", effect.high},
          {"log_ratio", effect.log_ratio},
          {"verdict", kNames[static_cast<size_t>(effect.verdict)]}};
}

object to_json(const Place& place) {
  return {{"experiment", place.experiment_id},
          {"bits", place.bits},
          {"seconds", place.seconds},
          {"value", place.value},
          {"reason", place.reason}};
}

Result<Hypothesis> hypothesis_from(const value& form) {
  FormReader reader = TRY(FormReader::create(form, "a hypothesis"));
  Hypothesis made;
  TRY(reader.take("statement", &made.statement, true));
  TRY(reader.take("metric", &made.metric, true));
  TRY(reader.take("more_is_better", &made.more_is_better));
  TRY(reader.take("predicted", &made.predicted));
  TRY(reader.take("reason", &made.reason));
  TRY(reader.take("worth", &made.worth));
  TRY(reader.finish());
  return made;
}

Result<Experiment> experiment_from(const value& form) {
  FormReader reader = TRY(FormReader::create(form, "an experiment"));
  Experiment made;
  int64_t max_rounds = made.max_rounds;
  TRY(reader.take("hypothesis", &made.hypothesis_id));
  TRY(reader.take("title", &made.title, true));
  TRY(reader.take("rationale", &made.rationale));
  TRY(reader.take("metric", &made.metric));
  TRY(reader.take("cost_s", &made.cost_s));
  TRY(reader.take("max_rounds", &max_rounds));
  TRY(reader.take("folder", &made.folder));
  TRY(reader.take("pinned", &made.pinned));
  made.sides = TRY(sides_from(*TRY(reader.find("sides", true))));
  if (const value* limits = TRY(reader.find("limits", false))) {
    made.limits = TRY(limits_from(*limits));
  }
  TRY(reader.finish());
  made.max_rounds = static_cast<int>(std::clamp<int64_t>(max_rounds, -1, 1 << 30));
  return made;
}

Result<Learning> learning_from(const value& form) {
  FormReader reader = TRY(FormReader::create(form, "a learning"));
  Learning made;
  TRY(reader.take("text", &made.text, true));
  TRY(reader.take("links", &made.links));
  TRY(reader.finish());
  return made;
}

Result<object> detail_of(Store& store, int64_t experiment_id) {
  const Experiment experiment = TRY(store.experiment(experiment_id));
  const std::vector<Run> runs = TRY(store.runs(experiment_id));
  object detail = to_json(experiment);
  boost::json::array rows, effects;
  for (const Run& run : runs) rows.push_back(to_json(run));
  for (int64_t side = 1; side < std::ssize(experiment.sides); ++side) {
    const Hypothesis about = TRY(about_side(store, experiment, side));
    object effect = to_json(side_effect(experiment, runs, about, side));
    effect["side"] = experiment.sides[static_cast<size_t>(side)].name;
    effects.push_back(std::move(effect));
  }
  detail["effects"] = std::move(effects);
  detail["runs"] = std::move(rows);
  return detail;
}

Result<object> export_json(Store& store) {
  boost::json::array hypotheses, experiments, learnings;
  for (const Hypothesis& each : TRY(store.hypotheses())) hypotheses.push_back(to_json(each));
  for (const Experiment& each : TRY(store.experiments())) {
    experiments.push_back(TRY(detail_of(store, each.id)));
  }
  for (const Learning& each : TRY(store.learnings())) learnings.push_back(to_json(each));
  return object{{"hypotheses", std::move(hypotheses)},
                {"experiments", std::move(experiments)},
                {"learnings", std::move(learnings)}};
}

Result<std::string> export_markdown(Store& store) {
  std::string page = "# Laboratory\n\n## Hypotheses\n\n";
  for (const Hypothesis& each : TRY(store.hypotheses())) {
    append_format(page, "- **{}. {}** ({}): {} {} by {:.3g} %. {}\n", each.id, each.statement,
                  each.state, each.metric, each.more_is_better ? "rises" : "falls",
                  100 * each.predicted, each.verdict);
    if (!each.reason.empty()) append_format(page, "  Because: {}\n", each.reason);
  }
  page += "\n## Experiments\n\n";
  for (const Experiment& each : TRY(store.experiments())) {
    TRY(append_experiment(store, each, &page));
  }
  page += "\n## Learnings\n\n";
  for (const Learning& each : TRY(store.learnings())) {
    append_format(page, "- {}", each.text);
    if (!each.links.empty()) append_format(page, " ({})", fmt::join(each.links, ", "));
    page += "\n";
  }
  return page;
}

}  // namespace headrace::lab
