// BeamSearch: which beams go on and which are hypotheses. Tokens and log-probs, no cache, no model.
//
// Each step every live beam brings its best continuations. All of them are ranked by their log-prob
// since the prompt; of equal ones the lower token id is first, then the earlier beam. Of the first
// `width` those that end become hypotheses; the first `width` that do not end live on. At the last
// length all of the first `width` are hypotheses. A hypothesis's score is its log-prob divided by
// its length, the stop id counted, to the power of length_penalty; the `width` best are kept, of
// equal ones the earlier. EarlyStopping says when that is enough. This is the beam search of
// transformers' generate(), with ties decided. A pure state machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace headrace {

// One continuation of a beam.
struct BeamCandidate {
  int32_t token_id = -1;
  float logprob = 0;  // of the token after the beam
  bool ends = false;  // a stop id

  bool operator==(const BeamCandidate&) const = default;
};

class BeamSearch {
 public:
  struct Beam {
    int32_t parent = 0;     // among the live beams before the step
    int32_t token_id = -1;  // that it goes on with; -1: the prompt alone
    double logprob = 0;     // since the prompt
    int32_t node = -1;      // its last token's place in the tree
  };

  // max_length: tokens of the longest output, at least 1. Begins with one live beam, the prompt.
  BeamSearch(const BeamParams& params, int32_t max_length);

  // Live ones, the best first.
  std::span<const Beam> beams() const { return beams_; }
  int32_t length() const { return length_; }
  // candidates[i]: of live beam i, its `width` best and its `width` best that do not end; fewer
  // where no more may come. In any order.
  void advance(std::span<const std::vector<BeamCandidate>> candidates);
  bool is_done() const { return is_done_; }
  // Once it is done: num_returned, or as many as were found; the best first.
  std::vector<BeamHypothesis> best() const;

 private:
  struct Ranked {
    double logprob;
    int32_t token_id;
    int32_t beam;
    bool ends;
  };
  struct Node {
    int32_t before;  // -1: the prompt
    int32_t token_id;
  };
  struct Found {
    double score, logprob;
    int32_t node;  // of its last token
    bool ends;     // with a stop id
  };

  void rank(std::span<const std::vector<BeamCandidate>> candidates);
  void keep(const Ranked& ranked);
  void go_on();
  bool has_enough() const;
  double score(double logprob, int32_t length) const;
  int32_t add_node(const Ranked& ranked);

  const BeamParams params_;
  const size_t width_;
  const int32_t max_length_;
  int32_t length_ = 0;
  bool is_done_ = false;
  std::vector<Beam> beams_, next_;
  std::vector<Ranked> ranked_;
  std::vector<Node> nodes_;   // all beams that ever lived
  std::vector<Found> found_;  // hypotheses, the best first
};

}  // namespace headrace
