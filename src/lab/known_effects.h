// KnownEffects: what the experiments of a laboratory say, as the queue and the page want it.
//
// Runs of an experiment are read again only when more of them are done than at the last look.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "lab/evidence.h"
#include "lab/store.h"

namespace headrace::lab {

class KnownEffects {
 public:
  // Of each of its questions, or, without any, of the second side; never empty. Experiments without
  // a run that is done are left out.
  Result<std::map<int64_t, std::vector<Effect>>> by_experiment(
      Store& store, std::span<const Experiment> experiments,
      std::span<const Hypothesis> hypotheses);
  Result<std::map<int64_t, std::vector<Effect>>> by_hypothesis(Store& store);

 private:
  struct Known {
    int64_t num_runs = 0;
    std::vector<Effect> effects;
  };
  std::map<int64_t, Known> known_;  // by experiment
};

// The same effects by the hypothesis that they are about, in order of experiments.
std::map<int64_t, std::vector<Effect>> effects_by_hypothesis(
    std::span<const Experiment> experiments, const std::map<int64_t, std::vector<Effect>>& effects);

}  // namespace headrace::lab
