#include "lab/views.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "lab/artifact_files.h"
#include "lab/forms.h"
#include "lab/queue.h"

namespace headrace::lab {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr int64_t kLogOfOne = 100;           // entries shown of one record
constexpr size_t kMostCompared = 4'000'000;  // pairs of words
constexpr size_t kMaxLabelBytes = 200;       // of a node

// All records of one look, but the runs and the log.
struct Look {
  std::vector<Experiment> experiments;
  std::vector<Hypothesis> hypotheses;
  std::map<int64_t, std::vector<Effect>> effects;  // by experiment
  std::map<int64_t, std::vector<Effect>> about;    // by hypothesis
  std::map<int64_t, int64_t> num_runs;             // by experiment
  std::vector<Place> order;
};

Result<Look> look_at(Store& store, KnownEffects& effects) {
  Look look;
  // Experiments first: what a new one is about is then among the hypotheses.
  look.experiments = TRY(store.experiments());
  look.hypotheses = TRY(store.hypotheses());
  look.effects = TRY(effects.by_experiment(store, look.experiments, look.hypotheses));
  look.about = effects_by_hypothesis(look.experiments, look.effects);
  look.num_runs = TRY(store.num_runs_done());
  look.order = order_queue(look.experiments, look.hypotheses, look.about);
  return look;
}

// The effect that an experiment has on a hypothesis, by the side that asks; 0: on its first. Null
// while no round has run.
const Effect* effect_on(const Look& look, const Experiment& experiment, int64_t hypothesis_id) {
  const auto found = look.effects.find(experiment.id);
  if (found == look.effects.end()) return nullptr;
  size_t place = 0;
  const std::vector<Question> questions = questions_of(experiment);
  for (size_t i = 0; i < questions.size(); ++i) {
    if (questions[i].hypothesis_id == hypothesis_id) place = i;
  }
  const Effect& effect = found->second[place];
  return effect.num_rounds == 0 ? nullptr : &effect;
}

object experiment_row(const Look& look, const Experiment& experiment, int64_t about = 0) {
  object row = to_json(experiment);
  const auto runs = look.num_runs.find(experiment.id);
  row["runs_done"] = runs == look.num_runs.end() ? 0 : runs->second;
  const Effect* effect = effect_on(look, experiment, about);
  row["effect"] = effect == nullptr ? value() : value(to_json(*effect));
  const auto place = std::ranges::find(look.order, experiment.id, &Place::experiment_id);
  const bool waits = place != look.order.end();
  row["queue_place"] = waits ? value(place - look.order.begin() + 1) : value();
  row["priority"] = waits ? value(place->value) : value();
  row["reason"] = waits ? place->reason : experiment.state_reason;
  return row;
}

object hypothesis_row(const Look& look, const Hypothesis& hypothesis) {
  object row = to_json(hypothesis);
  const auto effects = look.about.find(hypothesis.id);
  row["belief"] = effects == look.about.end() ? 0.5 : belief(effects->second);
  array experiments, measured;
  for (const Experiment& each : look.experiments) {
    if (!asks_about(each, hypothesis.id)) continue;
    experiments.push_back(each.id);
    const Effect* effect = effect_on(look, each, hypothesis.id);
    if (effect == nullptr) continue;
    object shown = to_json(*effect);
    shown["experiment"] = each.id;
    measured.push_back(std::move(shown));
  }
  row["experiments"] = std::move(experiments);
  row["effects"] = std::move(measured);
  return row;
}

// How many records have each state; the states that none has are 0.
template <typename Record>
object count_states(const std::vector<Record>& records,
                    std::initializer_list<std::string_view> states) {
  object counts;
  for (const std::string_view state : states) {
    counts[state] = std::ranges::count(records, state, &Record::state);
  }
  return counts;
}

object counts_of(const Look& look, size_t num_learnings) {
  int64_t num_runs = 0;
  for (const auto& [id, count] : look.num_runs) num_runs += count;
  return {{"hypotheses", count_states(look.hypotheses, {"open", "validated", "ruled out"})},
          {"experiments",
           count_states(look.experiments, {"queued", "running", "done", "failed", "cancelled"})},
          {"learnings", num_learnings},
          {"runs_done", num_runs}};
}

array entries_json(const std::vector<LogEntry>& entries) {
  array rows;
  for (const LogEntry& entry : entries) rows.push_back(to_json(entry));
  return rows;
}

// What stands at the end of a view of one record: who learnt from it, and what happened to it.
Status add_context(Store& store, const std::string& subject, object& view) {
  array learnings;
  for (const Learning& each : TRY(store.learnings())) {
    if (std::ranges::find(each.links, subject) != each.links.end()) {
      learnings.push_back(to_json(each));
    }
  }
  view["learnings"] = std::move(learnings);
  view["log"] = entries_json(TRY(store.newest_log(kLogOfOne, subject)));
  return {};
}

array words_json(const std::vector<std::string>& words) {
  array made;
  for (const std::string& word : words) made.emplace_back(word);
  return made;
}

array difference_of(const std::vector<Side>& sides) {
  array rows;
  for (size_t i = 1; i < sides.size(); ++i) {
    const WordDifference difference = word_difference(sides[0].command, sides[i].command);
    rows.push_back(object{{"side", sides[i].name},
                          {"removed", words_json(difference.removed)},
                          {"added", words_json(difference.added)}});
  }
  return rows;
}

array by_round(const Experiment& experiment, const std::vector<Run>& runs, int64_t side,
               bool more_is_better) {
  array rows;
  for (const auto& [round, ratio] : log_ratios_of(runs, side, experiment.metric, more_is_better)) {
    rows.push_back(object{{"round", round}, {"improvement", std::expm1(ratio)}});
  }
  return rows;
}

array artifacts_json(const std::string& folder, int64_t run_id) {
  array rows;
  for (const ArtifactFile& file : list_artifacts(folder, run_id)) {
    rows.push_back(object{{"name", file.name}, {"bytes", file.num_bytes}});
  }
  return rows;
}

std::string label_of(std::string_view text) {
  if (text.size() <= kMaxLabelBytes) return std::string(text);
  size_t end = kMaxLabelBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole letters
  return std::string(text.substr(0, end)) + "…";
}

// Nodes are added once each, edges only between nodes that are there.
class Graph {
 public:
  void add_node(const std::string& id, std::string_view kind, std::string_view label,
                std::string_view state) {
    if (!known_.insert(id).second) return;
    nodes_.push_back(
        object{{"id", id}, {"kind", kind}, {"label", label_of(label)}, {"state", state}});
  }
  void add_edge(const std::string& from, const std::string& to, std::string_view kind) {
    edges_.push_back(object{{"from", from}, {"to", to}, {"kind", kind}});
  }
  object take() { return {{"nodes", std::move(nodes_)}, {"edges", std::move(edges_)}}; }

 private:
  std::set<std::string> known_;
  array nodes_, edges_;
};

std::string node_of(std::string_view kind, int64_t id) { return fmt::format("{}:{}", kind, id); }

// How long the longest common part of words [i, ...) and [j, ...) is, for all i and j.
class CommonWords {
 public:
  CommonWords(const std::vector<std::string>& from, const std::vector<std::string>& to)
      : columns_(to.size() + 1), lengths_((from.size() + 1) * columns_) {
    for (size_t i = from.size(); i-- > 0;) {
      for (size_t j = to.size(); j-- > 0;) {
        lengths_[i * columns_ + j] =
            from[i] == to[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
      }
    }
  }
  uint32_t at(size_t i, size_t j) const { return lengths_[i * columns_ + j]; }

 private:
  const size_t columns_;
  std::vector<uint32_t> lengths_;
};

}  // namespace

WordDifference word_difference(const std::vector<std::string>& from,
                               const std::vector<std::string>& to) {
  if (from.size() * to.size() > kMostCompared) return {from, to};
  const CommonWords common(from, to);
  WordDifference found;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && j < to.size() && from[i] == to[j]) {
      ++i, ++j;
    } else if (j == to.size() || (i < from.size() && common.at(i + 1, j) >= common.at(i, j + 1))) {
      found.removed.push_back(from[i++]);
    } else {
      found.added.push_back(to[j++]);
    }
  }
  return found;
}

Result<object> overview_view(Store& store, KnownEffects& effects) {
  // First: whoever goes on from this entry misses nothing, and may be told twice.
  const int64_t last_log = TRY(store.last_log_id());
  const Look look = TRY(look_at(store, effects));
  const std::vector<Learning> learnt = TRY(store.learnings());
  array hypotheses, experiments, learnings;
  for (const Hypothesis& each : look.hypotheses) hypotheses.push_back(hypothesis_row(look, each));
  for (const Experiment& each : look.experiments) experiments.push_back(experiment_row(look, each));
  for (const Learning& each : learnt) learnings.push_back(to_json(each));
  return object{{"last_log", last_log},
                {"counts", counts_of(look, learnt.size())},
                {"hypotheses", std::move(hypotheses)},
                {"experiments", std::move(experiments)},
                {"learnings", std::move(learnings)}};
}

Result<object> queue_view(Store& store, KnownEffects& effects) {
  const Look look = TRY(look_at(store, effects));
  array running, queue, paused;
  for (const Place& place : look.order) queue.push_back(to_json(place));
  for (const Experiment& each : look.experiments) {
    if (each.state == "running") running.push_back(each.id);
    if (each.state == "queued" && each.paused) paused.push_back(each.id);
  }
  return object{
      {"running", std::move(running)}, {"queue", std::move(queue)}, {"paused", std::move(paused)}};
}

Result<object> experiment_view(Store& store, int64_t id) {
  const Experiment experiment = TRY(store.experiment(id));
  const std::vector<Run> runs = TRY(store.runs(id));
  object view = TRY(detail_of(store, id));
  view["about"] = nullptr;
  if (experiment.hypothesis_id != 0) {
    view["about"] = to_json(TRY(store.hypothesis(experiment.hypothesis_id)));
  }
  int64_t side = 1;
  for (value& effect : view["effects"].as_array()) {
    const Hypothesis about = TRY(about_side(store, experiment, side));
    effect.as_object()["by_round"] = by_round(experiment, runs, side++, about.more_is_better);
  }
  for (value& run : view["runs"].as_array()) {
    run.as_object()["artifacts"] = artifacts_json(store.folder(), run.at("id").as_int64());
  }
  view["difference"] = difference_of(experiment.sides);
  TRY(add_context(store, node_of("experiment", id), view));
  return view;
}

Result<object> hypothesis_view(Store& store, KnownEffects& effects, int64_t id) {
  const Hypothesis hypothesis = TRY(store.hypothesis(id));
  const Look look = TRY(look_at(store, effects));
  object view = hypothesis_row(look, hypothesis);
  array experiments;
  for (const Experiment& each : look.experiments) {
    if (asks_about(each, id)) experiments.push_back(experiment_row(look, each, id));
  }
  view["experiments"] = std::move(experiments);
  TRY(add_context(store, node_of("hypothesis", id), view));
  return view;
}

Result<object> graph_view(Store& store) {
  Graph graph;
  const auto experiments = TRY(store.experiments());
  for (const Hypothesis& each : TRY(store.hypotheses())) {
    graph.add_node(node_of("hypothesis", each.id), "hypothesis", each.statement, each.state);
  }
  for (const Experiment& each : experiments) {
    const std::string node = node_of("experiment", each.id);
    graph.add_node(node, "experiment", each.title, each.state);
    for (const Question& asked : questions_of(each)) {
      graph.add_edge(node, node_of("hypothesis", asked.hypothesis_id), "tests");
    }
  }
  const auto learnings = TRY(store.learnings());
  for (const Learning& each : learnings) {
    graph.add_node(node_of("learning", each.id), "learning", each.text, "");
  }
  for (const Learning& each : learnings) {
    for (const std::string& link : each.links) {
      graph.add_node(link, "other", link, "");  // unless it is a record's
      graph.add_edge(node_of("learning", each.id), link, "rests on");
    }
  }
  return graph.take();
}

object log_view(const std::vector<LogEntry>& entries) { return {{"log", entries_json(entries)}}; }

}  // namespace headrace::lab
