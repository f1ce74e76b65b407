#include "lab/known_effects.h"

#include <utility>

namespace headrace::lab {

Result<std::map<int64_t, Effect>> KnownEffects::by_experiment(
    Store& store, std::span<const Experiment> experiments, std::span<const Hypothesis> hypotheses) {
  std::map<int64_t, const Hypothesis*> about;
  for (const Hypothesis& each : hypotheses) about[each.id] = &each;
  const Hypothesis none;
  about[0] = &none;
  const auto counts = TRY(store.num_runs_done());
  std::map<int64_t, Effect> effects;
  for (const Experiment& experiment : experiments) {
    const auto count = counts.find(experiment.id);
    const auto asked = about.find(experiment.hypothesis_id);
    if (count == counts.end() || asked == about.end()) continue;
    Known& known = known_[experiment.id];
    if (known.num_runs != count->second) {
      known = {count->second, effect_of(TRY(store.runs(experiment.id)), 1, experiment.metric,
                                        asked->second->more_is_better, asked->second->predicted)};
    }
    effects[experiment.id] = known.effect;
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
    std::span<const Experiment> experiments, const std::map<int64_t, Effect>& effects) {
  std::map<int64_t, std::vector<Effect>> grouped;
  for (const Experiment& experiment : experiments) {
    const auto found = effects.find(experiment.id);
    if (experiment.hypothesis_id == 0 || found == effects.end()) continue;
    grouped[experiment.hypothesis_id].push_back(found->second);
  }
  return grouped;
}

}  // namespace headrace::lab
