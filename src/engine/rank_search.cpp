#include "engine/rank_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/numeric.h"

namespace headrace {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

bool reaches(const RankSearch::Goal& goal, size_t count, double weight) {
  if (count >= goal.count) return true;
  if (goal.weight < 0) return false;
  return goal.above ? weight > goal.weight : weight >= goal.weight;
}

}  // namespace

RankSearch::RankSearch(size_t vocab_size)
    : token_steps_(vocab_size),
      part_steps_(RowParts::kMost),
      ids_(vocab_size),
      tokens_(vocab_size),
      left_(vocab_size) {}

// Steps of the range that most values are in, so that few values far away do not make all others
// equal. Where the weights end, the last step begins: it may hold many tokens, and is not opened.
void RankSearch::choose_steps(const All& all) {
  const VocabRange usual = usual_range(all.values, token_steps_.size());
  const VocabRange& range = usual.finite ? usual : all.range;
  largest_ = all.range.largest;
  const float lowest = std::max({range.smallest, all.range.smallest, all.lowest});
  highest_ = range.largest > lowest ? range.largest : largest_;
  constexpr float kWithLastStep = kSteps / (kSteps - 1.1f);
  // At least something, at most what has a reciprocal.
  span_ = std::clamp((highest_ - lowest) * kWithLastStep, 1e-30f, 1e30f);
}

void RankSearch::begin_all(const All& all) {
  values_ = all.values;
  weights_ = all_weights_ = all.weights;
  all_ = true;
  parts_ = all.parts;
  open_step_ = -1;
  choose_steps(all);
  const size_t size = token_steps_.size();
  parts_.run(size, [&](size_t part, size_t first, size_t end) {
    part_steps_[part] = {};
    const VocabSteps steps{.values = all.values + first,
                           .weights = all.weights + first,
                           .count = end - first,
                           .vocab_size = size,
                           .highest = highest_,
                           .span = span_,
                           .steps = token_steps_.data() + first};
    if (all.weighing == nullptr) return step_vocab(steps, &part_steps_[part]);
    weigh_and_step_vocab(all.weighing->part(first, end), steps, &part_steps_[part]);
  });
  steps_ = part_steps_[0];
  for (size_t part = 1; part < parts_.count(size); ++part) {
    for (size_t step = 0; step < size_t{kSteps}; ++step) {
      steps_.weights[step] += part_steps_[part].weights[step];
      steps_.counts[step] += part_steps_[part].counts[step];
    }
  }
  sum_steps();
}

void RankSearch::sum_steps() {
  end_step_ = kSteps;
  while (end_step_ > 0 && weighs_nothing(end_step_ - 1)) --end_step_;
  for (size_t step = 0; step < size_t{kSteps}; ++step) {
    weights_before_[step + 1] = weights_before_[step] + steps_.weights[step];
    counts_before_[step + 1] = counts_before_[step] + steps_.counts[step];
  }
}

void RankSearch::begin_ids(const float* values, const float* weights, size_t num_ids) {
  values_ = values;
  weights_ = weights;
  all_ = false;
  load_tokens(num_ids);
}

// Makes the tokens of these steps tokens_.
void RankSearch::open(const StepRuns& runs) {
  open_step_ = -1;
  OfParts<size_t> firsts{}, counts{};
  const size_t size = token_steps_.size();
  parts_.run(size, [&](size_t part, size_t first, size_t end) {
    int32_t* ids = ids_.data() + first;
    firsts[part] = first;
    counts[part] = gather_steps(token_steps_.data() + first, end - first, runs, ids);
    for (size_t i = 0; first > 0 && i < counts[part]; ++i) ids[i] += static_cast<int32_t>(first);
  });
  size_t found = counts[0];
  for (size_t part = 1; part < parts_.count(size); ++part) {
    const auto start = ids_.begin() + static_cast<ptrdiff_t>(firsts[part]);
    std::copy_n(start, counts[part], ids_.begin() + static_cast<ptrdiff_t>(found));
    found += counts[part];
  }
  load_tokens(found);
}

void RankSearch::open(int step) {
  if (step == open_step_) return;
  const auto only = static_cast<uint8_t>(step);
  open({only, only, only, only});
  open_step_ = step;
}

void RankSearch::load_tokens(size_t num_ids) {
  num_open_ = num_ids;
  for (size_t i = 0; i < num_ids; ++i) {
    const int32_t id = ids_[i];
    tokens_[i] = {values_[id], weights_[id], id};
  }
}

// The step in which the goal is reached, kSteps if in none.
int RankSearch::step_of(const Goal& goal) const {
  int first = 0, end = kSteps;
  while (first < end) {
    const int step = (first + end) / 2;
    const auto next = static_cast<size_t>(step) + 1;
    const bool reached = reaches(goal, counts_before_[next], weights_before_[next]);
    (reached ? end : first) = reached ? step : step + 1;
  }
  return first;
}

RankSearch::Place RankSearch::find(const Goal& goal) {
  if (!all_) return find_open(goal, {});
  const int step = step_of(goal);
  const auto at = static_cast<size_t>(step);
  const Place before{counts_before_[at], weights_before_[at], -1};
  // A step without weight changes no sum, however many it holds.
  if (step == kSteps || weighs_nothing(step)) return before;
  open(step);
  return find_open(goal, before);
}

RankSearch::Place RankSearch::find_open(const Goal& goal, const Place& before) {
  std::copy_n(tokens_.begin(), num_open_, left_.begin());
  return find_among(std::span(left_).first(num_open_), goal, before);
}

void RankSearch::keep_first(const Place& place) {
  CHECK(all_, "only all tokens are kept in steps");
  if (place.last_id < 0) return;  // all that follows weighs nothing
  const auto last_step = token_steps_[static_cast<size_t>(place.last_id)];
  open(last_step);
  const float value = values_[place.last_id];
  for (Token& token : open_tokens()) {
    if (token.value > value || (token.value == value && token.id <= place.last_id)) continue;
    token.weight = all_weights_[token.id] = 0;
  }
  steps_.weights[last_step] = place.weight - weights_before_[last_step];
  std::fill(steps_.weights.begin() + last_step + 1, steps_.weights.end(), 0.0);
  sum_steps();
}

// Heavy tokens come first. So a step that holds both is where they end; one that holds only heavy
// ones, or only others, says on which side to go on.
double RankSearch::sum_heavy(float least, float about) {
  bool others = false;
  const auto sum_open = [&] {
    double sum = 0;
    for (const Token& token : open_tokens()) {
      const bool is_heavy = token.weight >= least;
      sum += is_heavy ? double{token.weight} : 0;
      others = others || !is_heavy;
    }
    return sum;
  };
  if (!all_) return sum_open();
  const float place = (highest_ - about) / span_ * static_cast<float>(kSteps);
  int step = place > 0 ? static_cast<int>(std::min<float>(place, kSteps - 1)) : 0;
  int first = 0, end = end_step_;  // steps before and from which all is known
  for (int stride = 1; first < end; stride *= 2) {
    step = std::clamp(step, first, end - 1);
    int at = step;
    while (at < end && weighs_nothing(at)) ++at;
    double sum = 0;
    others = at == end;
    if (at < end) {
      open(at);
      sum = sum_open();
      if (sum > 0 && others) return weights_before_[static_cast<size_t>(at)] + sum;
    }
    (others ? end : first) = others ? step : at + 1;
    step = others ? step - stride : at + stride;
    if (first > 0 && end < end_step_) step = (first + end) / 2;
  }
  return weights_before_[static_cast<size_t>(first)];
}

// A little more than the step, for what rounding does at its ends. The first step begins at the
// largest value, the last has no end.
RankSearch::Reach RankSearch::reach_of(int step, double centre) const {
  const double width = double{span_} / kSteps;
  const double above = double{largest_} - double{highest_};
  const double margin = 1e-3 * width + 1e-6 * (above + double{span_});
  const double begin = step == 0 ? 0 : above + step * width - margin;
  const double end = step == kSteps - 1 ? kEndless : above + (step + 1) * width + margin;
  Reach reach;
  reach.most = std::max(std::abs(begin + centre), std::abs(end + centre));
  if (begin > -centre) reach.least = begin + centre;
  if (end < -centre) reach.least = -centre - end;
  return reach;
}

// From the centre outwards: at which of these edges the steps before it weigh `weight` together.
double RankSearch::distance_of(double centre, double weight, double Reach::* edge) const {
  const double width = double{span_} / kSteps;
  const double place = (-centre - (double{largest_} - double{highest_})) / width;
  int below = static_cast<int>(std::clamp(place, 0.0, double{kSteps - 1}));
  int above = below + 1;
  double distance = 0, sum = 0;
  while (sum < weight && (below >= 0 || above < kSteps)) {
    const double lower = below < 0 ? kEndless : reach_of(below, centre).*edge;
    const double upper = above == kSteps ? kEndless : reach_of(above, centre).*edge;
    const int step = above == kSteps || (below >= 0 && lower <= upper) ? below-- : above++;
    distance = std::max(distance, std::min(lower, upper));
    sum += steps_.weights[static_cast<size_t>(step)];
  }
  return distance;
}

// Steps that are nearer than all that may hold the place are added up whole; those that are further
// are not looked at. The few between, a run of steps on each side, are opened.
RankSearch::Whole RankSearch::open_near(double centre, double weight) {
  // The place is at most as far as the steps that are sure to weigh enough, and at least as far as
  // those begin that may weigh as much.
  const double farthest = distance_of(centre, weight, &Reach::most);
  const double nearest = distance_of(centre, weight, &Reach::least);
  Whole whole;
  StepRuns runs;
  int num_runs = 0, last_open = -2;
  bool is_above = true;
  for (int step = 0; step < end_step_; ++step) {
    const Reach reach = reach_of(step, centre);
    const bool is_whole = reach.most < nearest;
    const bool is_open = !is_whole && reach.least <= farthest;
    is_above = is_above && !is_whole && !is_open;
    const auto at = static_cast<size_t>(step);
    if (is_above) whole.above = weights_before_[at + 1];
    if (is_whole) whole.inside += steps_.weights[at];
    if (!is_open) continue;
    if (last_open != step - 1) {
      ++num_runs;
      runs.other_first = static_cast<uint8_t>(step);
    }
    last_open = step;
    runs.other_last = static_cast<uint8_t>(step);
    if (num_runs == 1) runs.first = runs.other_first;
    if (num_runs == 1) runs.last = runs.other_last;
  }
  CHECK(num_runs == 1 || num_runs == 2, "{} runs of steps hold the place", num_runs);
  open(runs);
  return whole;
}

RankSearch::Near RankSearch::find_near(const Centre& centre) {
  const Whole whole = all_ ? open_near(double{centre.below}, centre.weight) : Whole{};
  const auto nearness = [&](float value) {
    return nearness_of_vocab(value, centre.largest, centre.below);
  };
  for (size_t i = 0; i < num_open_; ++i) {
    left_[i] = tokens_[i];
    left_[i].value = nearness(left_[i].value);
  }
  const Place last = find_among(std::span(left_).first(num_open_), {.weight = centre.weight},
                                {0, whole.inside, -1});
  return sum_near(centre, whole, nearness(values_[last.last_id]));
}

RankSearch::Near RankSearch::sum_near(const Centre& centre, const Whole& whole, float least) {
  Near near{whole.above, whole.inside, 0};
  for (const Token& token : open_tokens()) {
    const bool is_inside = nearness_of_vocab(token.value, centre.largest, centre.below) >= least;
    const bool is_upper = token.value - centre.largest > centre.below;
    const bool is_above = is_upper && !is_inside;
    near.inside += is_inside ? double{token.weight} : 0;
    near.above += is_above ? double{token.weight} : 0;
    // Those of whole steps lie between the sides of those that are open.
    const bool is_first = is_inside && (is_upper || whole.inside == 0);
    near.largest_weight = std::max(near.largest_weight, is_first ? token.weight : 0.0f);
  }
  return near;
}

// Tokens are in order of ids, and stay so while steps are left out.
RankSearch::Place RankSearch::find_among(std::span<Token> tokens, const Goal& goal,
                                         Place before) const {
  while (tokens.size() > kFew) {
    int32_t high = INT32_MIN, low = INT32_MAX;
    for (const Token& token : tokens) {
      const int32_t order = float_order(token.value);
      high = std::max(high, order);
      low = std::min(low, order);
    }
    if (high == low) break;
    const size_t kept = keep_fine_step(tokens, high, low, goal, &before);
    if (kept == 0) return before;
    tokens = tokens.first(kept);
  }
  // What is left is little, or in order: all equal.
  if (tokens.size() <= kFew) {
    std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
      return a.value != b.value ? a.value > b.value : a.id < b.id;
    });
  }
  for (const Token& token : tokens) {
    ++before.count;
    before.weight += double{token.weight};
    before.last_id = token.id;
    if (reaches(goal, before.count, before.weight)) break;
  }
  return before;
}

// Leaves those of the step in which the goal is reached, in steps of the order of floats; adds the
// steps before it. None: the goal is not reached.
size_t RankSearch::keep_fine_step(std::span<Token> tokens, int32_t high, int32_t low,
                                  const Goal& goal, Place* before) {
  constexpr size_t kFineSteps = size_t{1} << kFineBits;
  const auto span = static_cast<uint64_t>(int64_t{high} - low);
  const int shift = std::max(0, static_cast<int>(std::bit_width(span)) - kFineBits);
  const auto step_of = [&](const Token& token) {
    return static_cast<size_t>((int64_t{high} - float_order(token.value)) >> shift);
  };
  std::array<double, kFineSteps> weights = {};
  std::array<uint32_t, kFineSteps> counts = {};
  for (const Token& token : tokens) {
    const size_t step = step_of(token);
    weights[step] += double{token.weight};
    ++counts[step];
  }
  size_t found = 0;
  for (; found < kFineSteps; ++found) {
    const size_t count = before->count + counts[found];
    const double weight = before->weight + weights[found];
    if (reaches(goal, count, weight)) break;
    before->count = count;
    before->weight = weight;
  }
  size_t kept = 0;
  for (const Token& token : tokens) {
    const bool stays = step_of(token) == found;
    tokens[kept] = token;
    kept += stays ? 1 : 0;
  }
  return kept;
}

}  // namespace headrace
