#include "lab/known_effects.h"

#include <utility>

namespace headrace::lab {

Result<std::map<int64_t, std::vector<Effect>>> KnownEffects::by_hypothesis(Store& store) {
  const auto counts = TRY(store.num_runs_done());
  std::map<int64_t, Hypothesis> hypotheses;
  for (Hypothesis& each : TRY(store.hypotheses())) hypotheses[each.id] = std::move(each);
  std::map<int64_t, std::vector<Effect>> effects;
  for (const Experiment& experiment : TRY(store.experiments())) {
    const auto count = counts.find(experiment.id);
    if (experiment.hypothesis_id == 0 || count == counts.end()) continue;
    const Hypothesis& about = hypotheses.at(experiment.hypothesis_id);
    Known& known = known_[experiment.id];
    if (known.num_runs != count->second) {
      known = {count->second, effect_of(TRY(store.runs(experiment.id)), 1, about.metric,
                                        about.more_is_better, about.predicted)};
    }
    effects[about.id].push_back(known.effect);
  }
  return effects;
}

}  // namespace headrace::lab
