#include "lab/records.h"

#include <algorithm>

namespace headrace::lab {

std::vector<Question> questions_of(const Experiment& experiment) {
  std::vector<Question> questions;
  for (size_t i = 1; i < experiment.sides.size(); ++i) {
    const int64_t id = experiment.sides[i].hypothesis_id;
    if (id != 0) questions.push_back({static_cast<int64_t>(i), id});
  }
  if (questions.empty() && experiment.hypothesis_id != 0) {
    questions.push_back({1, experiment.hypothesis_id});
  }
  return questions;
}

bool asks_about(const Experiment& experiment, int64_t hypothesis_id) {
  return std::ranges::any_of(questions_of(experiment), [&](const Question& each) {
    return each.hypothesis_id == hypothesis_id;
  });
}

int64_t hypothesis_of_side(const Experiment& experiment, int64_t side_idx) {
  const int64_t own = experiment.sides[static_cast<size_t>(side_idx)].hypothesis_id;
  return own != 0 ? own : experiment.hypothesis_id;
}

}  // namespace headrace::lab
