#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace headrace {

BeamSearch::BeamSearch(const BeamParams& params, int32_t max_length)
    : params_(params),
      width_(static_cast<size_t>(params.width)),
      max_length_(max_length),
      beams_(1) {
  CHECK(params.width >= 1 && params.width <= kMaxBeams && max_length >= 1, "{} beams of {} tokens",
        params.width, max_length);
  CHECK(params.num_returned >= 1 && params.num_returned <= params.width, "{} of {} beams",
        params.num_returned, params.width);
}

void BeamSearch::advance(std::span<const std::vector<BeamCandidate>> candidates) {
  CHECK(!is_done_ && candidates.size() == beams_.size(), "candidates of {} beams for {}",
        candidates.size(), beams_.size());
  rank(candidates);
  ++length_;
  const bool is_last = length_ == max_length_;
  for (size_t i = 0; i < std::min(width_, ranked_.size()); ++i) {
    if (is_last || ranked_[i].ends) keep(ranked_[i]);
  }
  go_on();
  is_done_ = is_last || beams_.empty() || has_enough();
}

void BeamSearch::rank(std::span<const std::vector<BeamCandidate>> candidates) {
  ranked_.clear();
  for (size_t beam = 0; beam < candidates.size(); ++beam) {
    for (const BeamCandidate& each : candidates[beam]) {
      ranked_.push_back({beams_[beam].logprob + double{each.logprob}, each.token_id,
                         static_cast<int32_t>(beam), each.ends});
    }
  }
  std::sort(ranked_.begin(), ranked_.end(), [](const Ranked& a, const Ranked& b) {
    return std::tie(b.logprob, a.token_id, a.beam) < std::tie(a.logprob, b.token_id, b.beam);
  });
}

int32_t BeamSearch::add_node(const Ranked& ranked) {
  nodes_.push_back({beams_[static_cast<size_t>(ranked.beam)].node, ranked.token_id});
  return static_cast<int32_t>(nodes_.size()) - 1;
}

// A hypothesis, if it is among the best so far.
void BeamSearch::keep(const Ranked& ranked) {
  const double own = score(ranked.logprob, length_);
  const auto is_better = [](double a, const Found& b) { return a > b.score; };
  const auto place = std::upper_bound(found_.begin(), found_.end(), own, is_better);
  found_.insert(place, {own, ranked.logprob, add_node(ranked), ranked.ends});
  if (found_.size() > width_) found_.pop_back();
}

void BeamSearch::go_on() {
  next_.clear();
  for (const Ranked& each : ranked_) {
    if (next_.size() == width_) break;
    if (!each.ends) next_.push_back({each.beam, each.token_id, each.logprob, add_node(each)});
  }
  std::swap(beams_, next_);
}

bool BeamSearch::has_enough() const {
  if (found_.size() < width_) return false;
  if (params_.early_stopping == EarlyStopping::kYes) return true;
  const bool grows = params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  return score(beams_.front().logprob, grows ? max_length_ : length_) <= found_.back().score;
}

double BeamSearch::score(double logprob, int32_t length) const {
  return logprob / std::pow(static_cast<double>(length), double{params_.length_penalty});
}

std::vector<BeamHypothesis> BeamSearch::best() const {
  CHECK(is_done_, "the search goes on at {} tokens", length_);
  std::vector<BeamHypothesis> best;
  const size_t count = std::min(found_.size(), static_cast<size_t>(params_.num_returned));
  for (size_t i = 0; i < count; ++i) {
    const Found& found = found_[i];
    BeamHypothesis hypothesis;
    for (int32_t node = found.node; node >= 0; node = nodes_[static_cast<size_t>(node)].before) {
      hypothesis.token_ids.push_back(nodes_[static_cast<size_t>(node)].token_id);
    }
    std::reverse(hypothesis.token_ids.begin(), hypothesis.token_ids.end());
    if (found.ends) {
      hypothesis.stop_id = hypothesis.token_ids.back();
      hypothesis.token_ids.pop_back();
    }
    hypothesis.logprob = found.logprob;
    hypothesis.score = found.score;
    best.push_back(std::move(hypothesis));
  }
  return best;
}

}  // namespace headrace
