// KnownEffects: what the experiments of a laboratory say, by hypothesis, as the queue wants it.
//
// Runs of an experiment are read again only when more of them are done than at the last look.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lab/evidence.h"
#include "lab/store.h"

namespace headrace::lab {

class KnownEffects {
 public:
  Result<std::map<int64_t, std::vector<Effect>>> by_hypothesis(Store& store);

 private:
  struct Known {
    int64_t num_runs = 0;
    Effect effect;
  };
  std::map<int64_t, Known> known_;  // by experiment
};

}  // namespace headrace::lab
