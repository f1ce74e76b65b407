#include "lab/known_effects.h"

#include <utility>

namespace headrace::lab {

namespace {

using Hypotheses = std::map<int64_t, const Hypothesis*>;

// Empty where a hypothesis is not on record yet.
std::vector<Effect> effects_of(const Experiment& experiment, std::span<const Run> runs,
                               const Hypotheses& known) {
  std::vector<Question> questions = questions_of(experiment);
  if (questions.empty()) questions.emplace_back();
  std::vector<Effect> effects;
  for (const Question& each : questions) {
    const auto about = known.find(each.hypothesis_id);
    if (about == known.end()) return {};
    effects.push_back(effect_of(runs, each.side_idx, experiment.metric,
                                about->second->more_is_better, about->second->predicted));
  }
  return effects;
}

}  // namespace

Result<std::map<int64_t, std::vector<Effect>>> KnownEffects::by_experiment(
    Store& store, std::span<const Experiment> experiments, std::span<const Hypothesis> hypotheses) {
  Hypotheses about;
  for (const Hypothesis& each : hypotheses) about[each.id] = &each;
  const Hypothesis none;
  about[0] = &none;
  const auto counts = TRY(store.num_runs_done());
  std::map<int64_t, std::vector<Effect>> effects;
  for (const Experiment& experiment : experiments) {
    const auto count = counts.find(experiment.id);
    if (count == counts.end()) continue;
    Known& known = known_[experiment.id];
    if (known.num_runs != count->second) {
      known = {count->second, effects_of(experiment, TRY(store.runs(experiment.id)), about)};
      if (known.effects.empty()) known.num_runs = 0;
    }
    if (!known.effects.empty()) effects[experiment.id] = known.effects;
  }
  return effects;
}

Result<std::map<int64_t, std::vector<Effect>>> KnownEffects::by_hypothesis(Store& store) {
  // Experiments first: what a new one is about is then among the hypotheses.
  const auto experiments = TRY(store.experiments());
  const auto hypotheses = TRY(store.hypotheses());
  return effects_by_hypothesis(experiments, TRY(by_experiment(store, experiments, hypotheses)));
}

std::map<int64_t, std::vector<Effect>> effects_by_hypothesis(
    std::span<const Experiment> experiments,
    const std::map<int64_t, std::vector<Effect>>& effects) {
  std::map<int64_t, std::vector<Effect>> grouped;
  for (const Experiment& experiment : experiments) {
    const auto found = effects.find(experiment.id);
    if (found == effects.end()) continue;
    const std::vector<Question> questions = questions_of(experiment);
    for (size_t i = 0; i < questions.size(); ++i) {
      grouped[questions[i].hypothesis_id].push_back(found->second[i]);
    }
  }
  return grouped;
}

}  // namespace headrace::lab
