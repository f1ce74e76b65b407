// DraftPolicy: how many guesses a step verifies, so that guessing never costs more than it gives.
//
// Learned while running: how often guesses of some ground come true (over all sequences, and of
// each), and what steps of so many rows take. A guess at place i of a draft counts only if those
// before it came true, so its worth is a product of such shares. Of all guesses at hand the step
// takes the worthiest first, and as many as make tokens per time the most. Two floors: where no
// number of guesses is worth its rows, some are tried all the same, ever more rarely, to learn
// whether that is still so; and where steps with guesses turn out to give less than kFloor of what
// steps without give in the same time, there are none for a while, twice as long each time.
// Deterministic: times are arguments. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "engine/drafter.h"
#include "engine/step_cost.h"

namespace headrace {

// Times of steps that tell one more row from none: a cost model (step_cost.h) that is fitted to all
// steps, times how the steps with just so many rows compare with it. Between known numbers of rows
// it interpolates. While the model knows nothing a row costs kRowShare of a step of one row.
class RowTimes {
 public:
  static constexpr double kRowShare = 0.25;

  void observe(const StepCost& cost, const StepLoad& load, double us);
  double predict(const StepCost& cost, const StepLoad& load) const;
  // A few steps of so many rows were seen, one of them lately.
  bool knows(int64_t num_rows) const;
  void touch() const;

 private:
  struct Ratio {
    int64_t num_rows = 0;
    double ratio = 1;  // of a step's time to what the model says, smoothed
    int num_seen = 0;
    uint64_t seen_at = 0;
  };
  using Ratios = std::vector<Ratio>;
  static double model(const StepCost& cost, const StepLoad& load);
  Ratios::const_iterator first_from(int64_t num_rows) const;

  Ratios ratios_;  // by rows: side by side, since each choice looks at many
  uint64_t num_observed_ = 0;
};

// A step as it would be without guesses.
struct DraftStep {
  StepLoad load;
  int32_t num_streams = 0;  // sequences that get a token
  int32_t max_guesses = 0;
  StepLoad plain_load = {};  // without what guesses of the step before have left to do again, too
  bool redoes_rows = false;  // right guesses before a wrong one are computed again by the next step
};

// A step that was taken: decode and guesses, nothing else.
struct TakenStep {
  StepLoad load;
  StepLoad plain_load;  // without guesses, of it and of the step before
  int32_t num_streams = 0;
  int32_t num_tokens = 0;  // that they got
  double us = 0;           // without draft_us
  double draft_us = 0;     // that a model took to guess
};

class DraftPolicy {
 public:
  // Begins a step: whether it shall go without guesses; then drafters need not be asked.
  bool rests(const DraftStep& step);
  // Whether a model's guess (source: a model, a head) is more likely to come true than those that
  // the task has.
  bool prefers_model(const DraftTask& task, DraftSource source) const;
  // How many guesses a model shall make for each of these, in one run after the other; 0: they are
  // not worth its runs.
  int32_t model_length(const StepCost& cost, const DraftStep& step,
                       std::span<const DraftTask> tasks, DraftSource source);
  // It ran so often for them, which took this long.
  void drafted(int32_t num_runs, double us);
  // A head worked off rows of prompts, whose steps took prompt_us: what that takes beyond their own
  // part goes to the account.
  void kept_up(const StepCost& cost, double us, double prompt_us);
  // Whether there is anything on the account: else a head does not keep up with prompts.
  bool has_credit() const { return credit_ > 0; }
  // Shortens each draft to what the step shall verify.
  void choose(const StepCost& cost, const DraftStep& step, std::span<DraftTask> tasks);
  // Of one draft, the first num_accepted came true and, if there are more, the next did not.
  void verified(const DraftGround& ground, int32_t num_guesses, int32_t num_accepted,
                DraftRecord* own);
  // Asks for the memory that the next choose() reads, before it is needed.
  void touch() const;
  // cost: has observed the step.
  void took(const StepCost& cost, const TakenStep& step);

  // The share of such guesses at this place of a draft that come true once those before did.
  double survival(const DraftGround& ground, int32_t place, const DraftRecord& own) const;
  // Times that the credit was spent, and whether it is: then there are no guesses.
  uint64_t num_pauses() const { return num_pauses_; }
  bool is_paused() const { return is_paused_; }

 private:
  struct Share {
    double tried = 0, kept = 0;
  };
  static constexpr size_t kNumStrengths = 8;
  using Shares = std::array<std::array<Share, kNumStrengths>, kNumDraftSources>;

  // A guess of a draft, and how likely it and those before it are to come true, and these alone.
  struct Candidate {
    double chance, chance_before;
    int32_t place;
    size_t task;
  };
  static bool is_less_likely(const Candidate& a, const Candidate& b) {
    return std::tie(b.chance, a.place, a.task) > std::tie(a.chance, b.place, b.task);
  }
  void begin_candidates(std::span<const DraftTask> tasks);
  Candidate take_likeliest(std::span<const DraftTask> tasks);
  // Tries of what does not seem to pay.
  struct Probe {
    uint64_t gap = 0, steps_left = 0;
  };
  size_t probe(Probe* probe, size_t num_guesses);

  Shares shares_ = {};
  std::vector<Candidate> next_, found_;  // scratch of choose(): what is left, what is affordable
  std::vector<size_t> lengths_;          // likewise
  RowTimes times_;
  double run_us_ = 0;      // of a model that guesses, smoothed
  bool is_probe_ = false;  // this step
  Probe text_probe_, model_probe_;
  double credit_ = 4;  // in steps without guesses
  bool is_paused_ = false;
  uint64_t num_pauses_ = 0;
};

}  // namespace headrace
