// RankSearch: finds a place in the tokens sorted by falling value (ties: lower id first) without
// sorting them.
//
// A place is where the running count or the running weight reaches a goal. Values are counted and
// weighed in steps of their range, then only those of one step in finer steps, until few enough are
// left to sort. Weights must be as weigh_vocab() makes them: their sums are exact, so the place
// does not depend on how it was found, nor on how a row is cut into parts. Memory is that of
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/row_parts.h"

namespace headrace {

class RankSearch {
 public:
  explicit RankSearch(size_t vocab_size);

  // The tokens to search: all, or the ids given (ascending; they lie in ids() of this object and
  // are lost). Both arrays are per token of the vocabulary and outlive the search.
  struct All {
    const float* values = nullptr;
    const float* weights = nullptr;
    float largest = 0;    // of the values
    float span = 0;       // of the values whose weights matter, from the largest down
    bool counts = false;  // some goal is a count
    RowParts parts = {};
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
  // Of all: how near to `centre` (below the largest value, so not above 0) the tokens are that
  // weigh `weight` together, the nearest ones first: -|value - largest - centre| of the last of
  // them, as measure_nearness() gives it. nearness: room for one of each token.
  float find_nearness(float centre, double weight, float* nearness);

 private:
  static constexpr int kStepBits = 9;
  static constexpr int kSteps = 1 << kStepBits;
  static constexpr size_t kFew = 48;
  static constexpr int kCopies = 4;  // neighbours count in different copies: no waiting for stores

  void clear_steps(size_t num_copies);
  void add_part(const All& all, size_t part, size_t first, size_t end);
  void fold_steps(size_t num_copies);
  size_t gather_part(uint16_t step, size_t first, size_t end);
  int find_step(const Goal& goal, Place* place) const;
  size_t gather_step(int step);
  // How far the tokens of a step are from the centre at least and at most.
  struct Reach {
    double least = 0, most = 0;
  };
  Reach reach_of(int step, double centre) const;
  double distance_of(double centre, double weight, double Reach::* edge) const;
  Place find_among(std::span<int32_t> ids, const Goal& goal, Place before);
  Place walk_equal(std::span<const int32_t> ids, const Goal& goal, Place before) const;
  Place walk_sorted(std::span<int32_t> ids, const Goal& goal, Place before) const;

  const float* values_ = nullptr;
  const float* weights_ = nullptr;
  bool all_ = false;
  float largest_ = 0, span_ = 0;  // of all
  RowParts parts_;
  size_t num_ids_ = 0;
  std::vector<int32_t> ids_;                        // [vocab] given
  std::vector<int32_t> bucket_;                     // [vocab] of one step
  std::vector<uint16_t> bins_;                      // [vocab] step of each token, of all
  std::vector<double> step_weights_, all_weights_;  // [parts][kCopies][kSteps]; [kSteps]
  std::vector<uint32_t> step_counts_, all_counts_;
};

}  // namespace headrace
