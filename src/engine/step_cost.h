// StepCost: how long a step takes, from what is in it. Learns from the steps that ran.
//
// Time is a sum of parts with coefficients >= 0: one of every step; rows, in segments with slopes
// of their own (the first rows share the reading of the weights, many are bound by arithmetic,
// experts stand between: no single line fits them); sequences; rows through the head, and of those
// the ones that are drawn from a distribution; positions of keys and values that are read; pairs of
// a row and a position that it sees; memory that the system has to give first. Parts that no step
// has shown have no cost, rows in a segment not seen go on with the slope of the segment before.
//
// The newest steps of each size are kept and fitted by their relative errors, so that long decoding
// does not forget what prompts cost. A time far from what was expected counts only in part: a
// machine that is disturbed for a moment changes little. Where two steps in a row take much longer,
// or less, than expected, the machine has changed, maybe for seconds only, as where others want its
// cores: then all that is kept is taken to cost so much.
// A value: the same observations in the same order give the same predictions. Microseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace headrace {

// What a step has to do, as far as its time depends on it.
struct StepLoad {
  int64_t num_rows = 0;
  int64_t num_sequences = 0;
  int64_t num_logit_rows = 0;  // through the head
  int64_t num_drawn_rows = 0;  // of them, those whose logits are looked at
  int64_t num_positions = 0;   // of keys and values, of each sequence once
  int64_t num_pairs = 0;       // of a row and a position that it sees
  int64_t num_fresh = 0;       // pieces of memory that nobody has touched (memory_toucher.h)

  // So many rows of one sequence, of which the first stands at this position.
  void add(int64_t first_position, int64_t num_rows, int64_t num_logit_rows, bool draws);
};

class StepCost {
 public:
  // What a step takes; 0 while nothing was observed.
  double predict(const StepLoad& load) const;
  void observe(const StepLoad& load, TimeUs took_us);
  // The same of the step that observe() will be told next: predictions before that go by its pace,
  // which costs them nothing, where learning takes a while.
  void note(const StepLoad& load, TimeUs took_us);
  bool has_learned() const { return num_observed_ > 0; }
  // Asks for the memory that predict() and note() read, before it is needed.
  void touch() const;

 private:
  static constexpr size_t kNumParts = 11;
  static constexpr size_t kNumRings = 16;
  using Parts = std::array<double, kNumParts>;
  // Both by what was expected: so a step counts as much as others, and one that was late not less.
  struct Step {
    Parts parts{};
    double took = 1;
  };
  struct Ring {
    std::vector<Step> steps;
    size_t oldest = 0;  // once it is full
  };

  static Parts parts_of(const StepLoad& load);
  double cost_of(const Parts& parts) const;
  Ring& ring_of(const StepLoad& load);
  bool confirms(double ratio) const;
  double pace_after(double ratio) const;
  void follow(double ratio);
  void change(const Step& step, double sign);
  void sum_again();
  void solve();

  // By number of rows, each twice the one before; the last: those that touch fresh memory, of any
  // number of rows, which are rare.
  std::array<Ring, kNumRings + 1> rings_;
  // Of all steps kept: the sums of the products of their parts, and of these with what they took.
  std::array<Parts, kNumParts> products_{};
  Parts sums_{};
  Parts coefficients_{};
  double pace_ = 1;   // of the newest steps: their time by what their parts cost
  double noted_ = 0;  // what it will be with the step that was noted; 0: none was
  double far_ = 0;    // the newest, if it was far from that; else 0
  uint64_t num_observed_ = 0;
};

// One further sequence of a step, of which some rows may join.
struct ChunkOffer {
  int64_t first_position = 0;
  int64_t max_rows = 0;
  int64_t unit = 1;     // all max_rows, or a multiple of it
  bool scores = false;  // each of its rows goes through the head
};

// The most rows that may join `load` while the step takes no longer than budget_us; 0: not even
// one unit may.
int64_t rows_within(const StepCost& cost, const StepLoad& load, const ChunkOffer& chunk,
                    double budget_us);

// The fewest rows that have to join `load` so that, step after step, they advance at least at this
// share of the speed that they have in steps of their own, as many as may join; all, where fewer do
// not.
int64_t rows_for_share(const StepCost& cost, const StepLoad& load, const ChunkOffer& chunk,
                       double share);

}  // namespace headrace
