#include "engine/rank_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/numeric.h"
#include "engine/vocab_passes.h"

namespace headrace {
namespace {

bool reaches(const RankSearch::Goal& goal, size_t count, double weight) {
  if (count >= goal.count) return true;
  if (goal.weight < 0) return false;
  return goal.above ? weight > goal.weight : weight >= goal.weight;
}

}  // namespace

RankSearch::RankSearch(size_t vocab_size)
    : ids_(vocab_size),
      bucket_(vocab_size),
      bins_(vocab_size),
      step_weights_(size_t{kSteps} * kCopies * RowParts::kMost),
      all_weights_(kSteps),
      step_counts_(size_t{kSteps} * kCopies * RowParts::kMost),
      all_counts_(kSteps) {}

void RankSearch::clear_steps(size_t num_copies) {
  std::fill_n(step_weights_.begin(), num_copies * kSteps, 0.0);
  std::fill_n(step_counts_.begin(), num_copies * kSteps, 0u);
}

// The sums of the copies, in the first.
void RankSearch::fold_steps(size_t num_copies) {
  for (size_t i = kSteps; i < num_copies * kSteps; ++i) {
    step_weights_[i % kSteps] += step_weights_[i];
    step_counts_[i % kSteps] += step_counts_[i];
  }
}

// Each part has copies of its own.
void RankSearch::add_part(const All& all, size_t part, size_t first, size_t end) {
  bin_vocab({all.values + first, end - first, all.largest, all.span, kSteps, bins_.data() + first});
  const uint16_t* bins = bins_.data();
  const float* weights = all.weights;
  double* sums = step_weights_.data() + part * kCopies * kSteps;
  uint32_t* numbers = step_counts_.data() + part * kCopies * kSteps;
  const auto add = [&](size_t id, size_t copy) { sums[copy * kSteps + bins[id]] += weights[id]; };
  const auto count = [&](size_t id, size_t copy) { ++numbers[copy * kSteps + bins[id]]; };
  size_t id = first;
  for (; id + kCopies <= end; id += kCopies) {
    for (size_t copy = 0; copy < kCopies; ++copy) add(id + copy, copy);
  }
  for (; id < end; ++id) add(id, 0);
  if (!all.counts) return;
  for (id = first; id + kCopies <= end; id += kCopies) {
    for (size_t copy = 0; copy < kCopies; ++copy) count(id + copy, copy);
  }
  for (; id < end; ++id) count(id, 0);
}

void RankSearch::begin_all(const All& all) {
  values_ = all.values;
  weights_ = all.weights;
  all_ = true;
  largest_ = all.largest;
  span_ = all.span;
  parts_ = all.parts;
  num_ids_ = bins_.size();
  const size_t num_copies = kCopies * parts_.count(num_ids_);
  clear_steps(num_copies);
  parts_.run(num_ids_,
             [&](size_t part, size_t first, size_t end) { add_part(all, part, first, end); });
  fold_steps(num_copies);
  std::copy_n(step_weights_.begin(), kSteps, all_weights_.begin());
  std::copy_n(step_counts_.begin(), kSteps, all_counts_.begin());
}

void RankSearch::begin_ids(const float* values, const float* weights, size_t num_ids) {
  values_ = values;
  weights_ = weights;
  all_ = false;
  num_ids_ = num_ids;
}

RankSearch::Place RankSearch::find(const Goal& goal) {
  if (!all_) {
    std::copy_n(ids_.begin(), num_ids_, bucket_.begin());
    return find_among(std::span(bucket_).first(num_ids_), goal, {});
  }
  std::copy(all_weights_.begin(), all_weights_.end(), step_weights_.begin());
  std::copy(all_counts_.begin(), all_counts_.end(), step_counts_.begin());
  Place place;
  const int step = find_step(goal, &place);
  // A step without weight changes no sum, however many it holds.
  if (step == kSteps || all_weights_[static_cast<size_t>(step)] == 0) return place;
  return find_among(std::span(bucket_).first(gather_step(step)), goal, place);
}

// The step in which the goal is reached, kSteps if in none; adds the steps before it to the place.
int RankSearch::find_step(const Goal& goal, Place* place) const {
  for (int step = 0; step < kSteps; ++step) {
    const size_t count = place->count + step_counts_[static_cast<size_t>(step)];
    const double weight = place->weight + step_weights_[static_cast<size_t>(step)];
    if (reaches(goal, count, weight)) return step;
    place->count = count;
    place->weight = weight;
  }
  return kSteps;
}

size_t RankSearch::gather_step(int step) {
  OfParts<size_t> firsts{}, counts{};
  parts_.run(num_ids_, [&](size_t part, size_t first, size_t end) {
    firsts[part] = first;
    counts[part] = gather_part(static_cast<uint16_t>(step), first, end);
  });
  size_t found = counts[0];
  for (size_t part = 1; part < parts_.count(num_ids_); ++part) {
    const auto start = bucket_.begin() + static_cast<ptrdiff_t>(firsts[part]);
    std::copy_n(start, counts[part], bucket_.begin() + static_cast<ptrdiff_t>(found));
    found += counts[part];
  }
  return found;
}

// Those of [first, end) into the bucket from `first` on; returns how many.
size_t RankSearch::gather_part(uint16_t step, size_t first, size_t end) {
  int32_t* bucket = bucket_.data() + first;
  const size_t found = gather_bins(bins_.data() + first, end - first, step, step, bucket);
  for (size_t i = 0; i < found; ++i) bucket[i] += static_cast<int32_t>(first);
  return found;
}

// A little more than the step, for what rounding does at its ends; the last has no end.
RankSearch::Reach RankSearch::reach_of(int step, double centre) const {
  const double width = double{span_} / kSteps;
  const double margin = 1e-3 * width;
  const double begin = step * width - margin, end = (step + 1) * width + margin;
  Reach reach;
  reach.most = std::max(std::abs(begin + centre), std::abs(end + centre));
  if (step == kSteps - 1) reach.most = std::numeric_limits<double>::infinity();
  if (begin > -centre) reach.least = begin + centre;
  if (end < -centre && step < kSteps - 1) reach.least = -centre - end;
  return reach;
}

// From the centre outwards: at which of these edges the steps before it weigh `weight` together.
double RankSearch::distance_of(double centre, double weight, double Reach::* edge) const {
  const double width = double{span_} / kSteps;
  int below = width > 0 ? std::min(static_cast<int>(-centre / width), kSteps - 1) : 0;
  int above = below + 1;
  double distance = 0, sum = 0;
  while (sum < weight && (below >= 0 || above < kSteps)) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double lower = below < 0 ? infinity : reach_of(below, centre).*edge;
    const double upper = above == kSteps ? infinity : reach_of(above, centre).*edge;
    const int step = above == kSteps || (below >= 0 && lower <= upper) ? below-- : above++;
    distance = std::max(distance, std::min(lower, upper));
    sum += all_weights_[static_cast<size_t>(step)];
  }
  return distance;
}

// Steps that are nearer than all that may hold the place are added up whole; those that are further
// are not looked at. The few between, a run of steps on each side, are searched token by token.
float RankSearch::find_nearness(float centre, double weight, float* nearness) {
  // The place is at most as far as the steps that are sure to weigh enough, and at least as far as
  // those begin that may weigh as much.
  const double farthest = distance_of(double{centre}, weight, &Reach::most);
  const double nearest = distance_of(double{centre}, weight, &Reach::least);
  Place place;
  size_t found = 0;
  for (int step = 0, first = -1; step <= kSteps; ++step) {
    const Reach reach = step < kSteps ? reach_of(step, double{centre}) : Reach{};
    const bool is_whole = reach.most < nearest;
    const bool is_open = step < kSteps && !is_whole && reach.least <= farthest;
    if (step < kSteps && is_whole) place.weight += all_weights_[static_cast<size_t>(step)];
    if (is_open && first < 0) first = step;
    if (is_open || first < 0) continue;
    found += gather_bins(bins_.data(), num_ids_, static_cast<uint16_t>(first),
                         static_cast<uint16_t>(step - 1), bucket_.data() + found);
    first = -1;
  }
  const auto ids = std::span(bucket_).first(found);
  for (const int32_t id : ids) {
    nearness[id] = nearness_of_vocab(values_[id], largest_, centre);
  }
  const float* values = std::exchange(values_, nearness);
  place = find_among(ids, {.weight = weight}, place);
  values_ = values;
  return nearness[place.last_id];
}

// ids are ascending, and stay so while steps are left out.
RankSearch::Place RankSearch::find_among(std::span<int32_t> ids, const Goal& goal, Place before) {
  while (ids.size() > kFew) {
    int32_t high = INT32_MIN, low = INT32_MAX;
    for (const int32_t id : ids) {
      const int32_t order = float_order(values_[id]);
      high = std::max(high, order);
      low = std::min(low, order);
    }
    if (high == low) return walk_equal(ids, goal, before);
    const uint64_t span = static_cast<uint64_t>(int64_t{high} - low);
    const int shift = std::max(0, static_cast<int>(std::bit_width(span)) - kStepBits);
    const auto step_of = [&](int32_t id) {
      return static_cast<size_t>((int64_t{high} - float_order(values_[id])) >> shift);
    };
    clear_steps(kCopies);
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t step = i % kCopies * kSteps + step_of(ids[i]);
      step_weights_[step] += weights_[ids[i]];
      ++step_counts_[step];
    }
    fold_steps(kCopies);
    const int step = find_step(goal, &before);
    if (step == kSteps) return before;
    size_t kept = 0;
    for (const int32_t id : ids) {
      ids[kept] = id;
      kept += step_of(id) == static_cast<size_t>(step) ? 1 : 0;
    }
    ids = ids.first(kept);
  }
  return walk_sorted(ids, goal, before);
}

// All values are equal, and so are the weights.
RankSearch::Place RankSearch::walk_equal(std::span<const int32_t> ids, const Goal& goal,
                                         Place before) const {
  const double weight = weights_[ids[0]];
  const auto reached_with = [&](size_t count) {
    return reaches(goal, before.count + count, before.weight + static_cast<double>(count) * weight);
  };
  size_t low = 1, high = ids.size();  // the least count that reaches the goal
  if (!reached_with(high)) low = high;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    (reached_with(middle) ? high : low) = reached_with(middle) ? middle : middle + 1;
  }
  return {before.count + low, before.weight + static_cast<double>(low) * weight, ids[low - 1]};
}

RankSearch::Place RankSearch::walk_sorted(std::span<int32_t> ids, const Goal& goal,
                                          Place before) const {
  std::sort(ids.begin(), ids.end(), [this](int32_t a, int32_t b) {
    return values_[a] != values_[b] ? values_[a] > values_[b] : a < b;
  });
  for (const int32_t id : ids) {
    ++before.count;
    before.weight += weights_[id];
    before.last_id = id;
    if (reaches(goal, before.count, before.weight)) break;
  }
  return before;
}

}  // namespace headrace
