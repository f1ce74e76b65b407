// RankSearch: finds a place in the tokens sorted by falling value (ties: lower id first) without
// sorting them.
//
// A place is where the running count or the running weight reaches a goal. All tokens are counted
// and weighed once, in steps of the range of values; then only those of one step are looked at, in
// finer steps, until few enough are left to sort. Weights must be as weigh_vocab() makes them: they
// never rise where values fall, and their sums are exact, so that a place does not depend on how it
// was found, nor on how a row is cut into parts. Memory is that of construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/line_vector.h"
#include "engine/row_parts.h"
#include "engine/vocab_passes.h"

namespace headrace {

class RankSearch {
 public:
  explicit RankSearch(size_t vocab_size);

  // The tokens to search: all, or the ids given (ascending; they lie in ids() of this object). Both
  // arrays are per token of the vocabulary and outlive the search.
  struct All {
    const float* values = nullptr;
    float* weights = nullptr;
    VocabRange range = {};                                   // of the values
    float lowest = -std::numeric_limits<float>::infinity();  // values below it weigh nothing
    RowParts parts = {};
    // How the weights are to be made, in the same pass; null: they are there.
    const VocabWeights* weighing = nullptr;
  };
  void begin_all(const All& all);
  void begin_ids(const float* values, const float* weights, size_t num_ids);
  std::span<int32_t> ids() { return ids_; }

  struct Goal {
    size_t count = SIZE_MAX;  // reached by this many tokens
    double weight = -1;       // if not negative, reached by this weight
    bool above = false;       // the weight must be above the goal, not equal
  };
  // The first tokens that reach the goal, or all; without those at the end that weigh nothing.
  struct Place {
    size_t count = 0;
    double weight = 0;
    int32_t last_id = -1;  // the one that reached it
  };
  Place find(const Goal& goal);
  double weight() const { return weights_before_.back(); }  // of all
  // Of all: the tokens behind a place that was found weigh nothing in the searches that follow, nor
  // in the array if their value is that of the place.
  void keep_first(const Place& place);
  // What the tokens of at least this weight, above 0, weigh together. about: a value that weighs
  // about as much; it only says where to look first.
  double sum_heavy(float least, float about);
  // Tokens by how near (value - largest) is to a centre, which is not above 0.
  struct Centre {
    float largest = 0;  // of the values
    float below = 0;
    double weight = 0;  // of the nearest tokens together
  };
  // The nearest tokens that weigh so much, with all that are as near as the last of them.
  struct Near {
    double above = 0;  // what weighs the others with larger values
    double inside = 0;
    float largest_weight = 0;  // of those inside; 0: not known
  };
  Near find_near(const Centre& centre);

 private:
  static constexpr int kSteps = kVocabSteps;
  static constexpr int kFineBits = 8;
  static constexpr size_t kFew = 48;

  struct Token {
    float value = 0, weight = 0;
    int32_t id = 0;
  };
  void choose_steps(const All& all);
  void sum_steps();
  int step_of(const Goal& goal) const;
  bool weighs_nothing(int step) const { return steps_.weights[static_cast<size_t>(step)] == 0; }
  void open(const StepRuns& runs);
  void open(int step);
  void load_tokens(size_t num_ids);
  std::span<Token> open_tokens() { return std::span(tokens_).first(num_open_); }
  Place find_open(const Goal& goal, const Place& before);
  // How far the tokens of a step are from the centre at least and at most.
  struct Reach {
    double least = 0, most = 0;
  };
  Reach reach_of(int step, double centre) const;
  double distance_of(double centre, double weight, double Reach::* edge) const;
  struct Whole {
    double above = 0, inside = 0;  // of the steps that are not open
  };
  Whole open_near(double centre, double weight);
  Near sum_near(const Centre& centre, const Whole& whole, float least);
  Place find_among(std::span<Token> tokens, const Goal& goal, Place before) const;
  static size_t keep_fine_step(std::span<Token> tokens, int32_t high, int32_t low, const Goal& goal,
                               Place* before);

  const float* values_ = nullptr;
  const float* weights_ = nullptr;
  float* all_weights_ = nullptr;
  bool all_ = false;
  float largest_ = 0, highest_ = 0, span_ = 1;  // of all; the steps lie below the highest
  RowParts parts_;
  LineVector<uint8_t> token_steps_;                     // [vocab] step of each token, of all
  StepSums steps_;                                      // of all
  std::array<double, kSteps + 1> weights_before_ = {};  // each step
  std::array<size_t, kSteps + 1> counts_before_ = {};
  int end_step_ = 0;  // those from here on weigh nothing
  std::vector<StepSums> part_steps_;
  std::vector<int32_t> ids_;   // [vocab] given, or those of the steps that are open
  std::vector<Token> tokens_;  // [vocab] of ids_
  size_t num_open_ = 0;
  int open_step_ = -1;       // tokens_ are all of it; -1: of none
  std::vector<Token> left_;  // [vocab] of tokens_, while one of them is searched for
};

}  // namespace headrace
