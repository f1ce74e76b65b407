// Beam search as one reads it in transformers' generate(): full sorts, whole sequences, no tree.
// The oracle of tests; ties as BeamSearch decides them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "engine/beam_search.h"

namespace headrace {

class BeamReference {
 public:
  // Log-probs of all tokens after an output; -inf: it may not come.
  using Rows = std::function<std::vector<float>(const std::vector<int32_t>&)>;

  BeamReference(const BeamParams& params, int32_t max_length, std::set<int32_t> end_ids)
      : params_(params), max_length_(max_length), end_ids_(std::move(end_ids)) {}

  std::vector<BeamHypothesis> run(const Rows& rows) {
    running_ = {{{}, 0}};
    finished_.clear();
    for (int32_t length = 1; step(rows, length); ++length) {
    }
    std::vector<BeamHypothesis> best;
    for (const Output& output : finished_) {
      if (std::ssize(best) == params_.num_returned) break;
      BeamHypothesis hypothesis{output.tokens, -1, output.logprob, output.score};
      if (end_ids_.contains(output.tokens.back())) {
        hypothesis.stop_id = output.tokens.back();
        hypothesis.token_ids.pop_back();
      }
      best.push_back(std::move(hypothesis));
    }
    return best;
  }

 private:
  struct Output {
    std::vector<int32_t> tokens;
    double logprob = 0;
    double score = 0;
    size_t order = 0;  // of the finished: which it was
  };
  struct Continuation {
    double logprob;
    int32_t token_id;
    size_t beam;
  };

  double score(double logprob, int32_t length) const {
    return logprob / std::pow(double(length), double{params_.length_penalty});
  }

  // Of all live beams, the best first.
  std::vector<Continuation> continuations(const Rows& rows) const {
    std::vector<Continuation> all;
    for (size_t beam = 0; beam < running_.size(); ++beam) {
      const std::vector<float> row = rows(running_[beam].tokens);
      for (size_t token = 0; token < row.size(); ++token) {
        if (std::isinf(row[token])) continue;
        all.push_back(
            {running_[beam].logprob + double{row[token]}, static_cast<int32_t>(token), beam});
      }
    }
    std::sort(all.begin(), all.end(), [](const Continuation& a, const Continuation& b) {
      if (a.logprob != b.logprob) return a.logprob > b.logprob;
      return std::pair(a.token_id, a.beam) < std::pair(b.token_id, b.beam);
    });
    return all;
  }

  // False: it was the last.
  bool step(const Rows& rows, int32_t length) {
    const std::vector<Continuation> all = continuations(rows);
    const std::vector<Output> before = std::move(running_);
    const auto width = static_cast<size_t>(params_.width);
    running_.clear();
    for (size_t rank = 0; rank < all.size() && running_.size() < width; ++rank) {
      const bool ends = length == max_length_ || end_ids_.contains(all[rank].token_id);
      if (ends && rank >= width) continue;
      Output output{before[all[rank].beam].tokens, all[rank].logprob, 0, 0};
      output.tokens.push_back(all[rank].token_id);
      if (!ends) {
        running_.push_back(std::move(output));
        continue;
      }
      output.score = score(output.logprob, length);
      output.order = num_finished_++;
      finished_.push_back(std::move(output));
    }
    std::sort(finished_.begin(), finished_.end(), [](const Output& a, const Output& b) {
      return a.score != b.score ? a.score > b.score : a.order < b.order;
    });
    if (finished_.size() > width) finished_.resize(width);
    if (running_.empty()) return false;
    if (finished_.size() < width) return true;
    if (params_.early_stopping == EarlyStopping::kYes) return false;
    const bool at_longest =
        params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
    return score(running_[0].logprob, at_longest ? max_length_ : length) > finished_.back().score;
  }

  const BeamParams params_;
  const int32_t max_length_;
  const std::set<int32_t> end_ids_;
  std::vector<Output> running_, finished_;
  size_t num_finished_ = 0;
};

// What a sampler gives a beam: its best, and its best that do not end.
inline std::vector<BeamCandidate> beam_candidates(const std::vector<float>& row, int32_t width,
                                                  const std::set<int32_t>& end_ids) {
  std::vector<BeamCandidate> all;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!std::isinf(row[i])) all.push_back({id, row[i], end_ids.contains(id)});
  }
  std::sort(all.begin(), all.end(), [](const BeamCandidate& a, const BeamCandidate& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token_id < b.token_id;
  });
  std::vector<BeamCandidate> wanted;
  int32_t num_live = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const bool is_among_best = rank < static_cast<size_t>(width);
    if (!is_among_best && (all[rank].ends || num_live >= width)) continue;
    wanted.push_back(all[rank]);
    num_live += all[rank].ends ? 0 : 1;
  }
  return wanted;
}

}  // namespace headrace
