#include "engine/draft_policy.h"

#include <algorithm>
#include <iterator>

#include "base/prefetch.h"

namespace headrace {
namespace {

constexpr double kWorthwhile = 1.02;  // tokens per time with guesses over those without
constexpr double kOwnWeight = 4;      // tries after which a sequence's own record counts half
constexpr float kOwnMemory = 16;      // tries of a sequence that are remembered
constexpr double kPriorWeight = 4;
constexpr double kMemory = 256;  // tries of a kind that are remembered
constexpr uint64_t kFirstProbeGap = 64, kMaxProbeGap = 1024;
constexpr size_t kProbeGuesses = 2;
constexpr uint64_t kProbeRetry = 2;  // steps to the next, if nothing came of one
constexpr int32_t kMaxModelLength = 8;
constexpr double kMostCredit = 8;
constexpr double kCreditShare = 0.02;
constexpr double kTimeMemory = 1.0 / 8;
constexpr uint64_t kTimeLife = 512;  // steps
constexpr int kTrusted = 3;          // steps of so many rows; of the first ones the shortest counts
constexpr double kOutlier = 1.5;     // times what was expected: counts as that

// Matches of so many tokens and more are of one strength; what is guessed at first of each.
struct Strength {
  int32_t match_length;
  double prior;
};
constexpr Strength kTextStrengths[] = {{3, 0.5},   {4, 0.55},  {5, 0.62},  {7, 0.7},
                                       {10, 0.78}, {16, 0.85}, {24, 0.88}, {40, 0.9}};
constexpr double kModelPrior = 0.7;

bool is_match(const DraftGround& ground) {
  return ground.source == DraftSource::kText || ground.source == DraftSource::kPrediction;
}

// A match whose first guesses came true is so much longer; of a model the place itself counts.
size_t strength_of(const DraftGround& ground, int32_t place) {
  if (!is_match(ground)) return static_cast<size_t>(std::min(place, 7));
  size_t strength = 0;
  while (strength + 1 < std::size(kTextStrengths) &&
         ground.match_length + place >= kTextStrengths[strength + 1].match_length) {
    ++strength;
  }
  return strength;
}

double prior_of(const DraftGround& ground, size_t strength) {
  return is_match(ground) ? kTextStrengths[strength].prior : kModelPrior;
}

}  // namespace

double RowTimes::model(const StepCost& cost, const StepLoad& load) {
  if (cost.has_learned()) return std::max(1.0, cost.predict(load));
  return 1 + kRowShare * static_cast<double>(load.num_rows - 1);
}

void RowTimes::observe(const StepCost& cost, const StepLoad& load, double us) {
  const double ratio = us / model(cost, load);
  auto entry = ratios_.begin() + (first_from(load.num_rows) - ratios_.cbegin());
  if (entry == ratios_.end() || entry->num_rows != load.num_rows)
    entry = ratios_.insert(entry, Ratio{load.num_rows, ratio, 0, 0});
  Ratio& known = *entry;
  if (++known.num_seen <= kTrusted) {
    known.ratio = std::min(known.ratio, ratio);
  } else {
    const double likely = std::clamp(ratio, known.ratio / kOutlier, known.ratio * kOutlier);
    known.ratio += kTimeMemory * (likely - known.ratio);
  }
  known.seen_at = ++num_observed_;
  if (num_observed_ % kTimeLife != 0) return;
  std::erase_if(ratios_,
                [&](const Ratio& each) { return each.seen_at + 2 * kTimeLife < num_observed_; });
}

RowTimes::Ratios::const_iterator RowTimes::first_from(int64_t num_rows) const {
  return std::lower_bound(ratios_.begin(), ratios_.end(), num_rows,
                          [](const Ratio& each, int64_t rows) { return each.num_rows < rows; });
}

void RowTimes::touch() const { prefetch(ratios_.data(), ratios_.size() * sizeof(Ratio)); }

bool RowTimes::knows(int64_t num_rows) const {
  const auto found = first_from(num_rows);
  return found != ratios_.end() && found->num_rows == num_rows && found->num_seen >= kTrusted &&
         found->seen_at + kTimeLife > num_observed_;
}

double RowTimes::predict(const StepCost& cost, const StepLoad& load) const {
  const double us = model(cost, load);
  if (ratios_.empty()) return us;
  const auto above = first_from(load.num_rows);
  const auto below = above == ratios_.begin() ? above : std::prev(above);
  if (above == ratios_.end() || above == below) return below->ratio * us;
  const double part = static_cast<double>(load.num_rows - below->num_rows) /
                      static_cast<double>(above->num_rows - below->num_rows);
  return (below->ratio + part * (above->ratio - below->ratio)) * us;
}

// What a step takes without guesses is measured first, and again after a while.
bool DraftPolicy::rests(const DraftStep& step) {
  is_probe_ = false;
  return step.load.num_rows == step.num_streams && !times_.knows(step.num_streams);
}

double DraftPolicy::survival(const DraftGround& ground, int32_t place,
                             const DraftRecord& own) const {
  const size_t strength = strength_of(ground, place);
  const Share& share = shares_[static_cast<size_t>(ground.source)][strength];
  const double common =
      (kPriorWeight * prior_of(ground, strength) + share.kept) / (kPriorWeight + share.tried);
  return (kOwnWeight * common + own.kept) / (kOwnWeight + own.tried);
}

// Chances fall along a draft, so each is taken from its beginning, and of each draft only the next
// guess need be looked at: next_, a heap.
void DraftPolicy::begin_candidates(std::span<const DraftTask> tasks) {
  next_.clear();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Draft& draft = tasks[i].draft;
    if (draft.token_ids.empty()) continue;
    next_.push_back({survival(draft.ground, 0, tasks[i].sequence->draft_record), 1, 0, i});
  }
  std::make_heap(next_.begin(), next_.end(), is_less_likely);
}

// Of all guesses that are left the likeliest, which is left no more.
DraftPolicy::Candidate DraftPolicy::take_likeliest(std::span<const DraftTask> tasks) {
  std::pop_heap(next_.begin(), next_.end(), is_less_likely);
  Candidate& next = next_.back();
  const Candidate taken = next;
  const DraftTask& task = tasks[next.task];
  if (++next.place == std::ssize(task.draft.token_ids)) {
    next_.pop_back();
    return taken;
  }
  next.chance_before = next.chance;
  next.chance *= survival(task.draft.ground, next.place, task.sequence->draft_record);
  std::push_heap(next_.begin(), next_.end(), is_less_likely);
  return taken;
}

void DraftPolicy::choose(const StepCost& cost, const DraftStep& step, std::span<DraftTask> tasks) {
  begin_candidates(tasks);
  if (next_.empty() || step.max_guesses == 0) return;
  const double plain_us = times_.predict(cost, step.load);
  StepLoad load = step.load;
  double tokens = step.num_streams, best_gain = kWorthwhile;
  double us = plain_us, redone_rows = 0;
  size_t num_taken = 0;
  found_.clear();
  while (!next_.empty() && std::ssize(found_) < step.max_guesses) {
    const Candidate candidate = take_likeliest(tasks);
    tokens += candidate.chance;
    const Sequence& sequence = *tasks[candidate.task].sequence;
    load.add(sequence.num_known(), 1, 1, sequence.draws());
    --load.num_sequences;
    us = std::max(us, times_.predict(cost, load));  // a row more is not faster, as it may seem
    if (us > plain_us * (1 + credit_)) break;
    found_.push_back(candidate);
    redone_rows += candidate.place * (candidate.chance_before - candidate.chance);
    const double redone = step.redoes_rows ? redone_rows / static_cast<double>(found_.size()) : 0;
    const double whole_us = us + redone * (us - plain_us);
    const double gain = tokens / step.num_streams * plain_us / whole_us;
    if (gain <= best_gain) continue;
    best_gain = gain;
    num_taken = found_.size();
  }
  if (found_.empty() && !is_paused_) ++num_pauses_;
  is_paused_ = found_.empty();
  if (num_taken == 0) {
    const size_t num_tried = std::min(found_.size(), kProbeGuesses);
    num_taken = is_probe_ ? num_tried : probe(&text_probe_, num_tried);
  }
  lengths_.assign(tasks.size(), 0);
  for (size_t i = 0; i < num_taken; ++i) ++lengths_[found_[i].task];
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].draft.token_ids.resize(lengths_[i]);
}

bool DraftPolicy::prefers_model(const DraftTask& task, DraftSource source) const {
  const DraftRecord& own = task.sequence->draft_record;
  return task.draft.token_ids.empty() ||
         survival(task.draft.ground, 0, own) < survival({source}, 0, own);
}

int32_t DraftPolicy::model_length(const StepCost& cost, const DraftStep& step,
                                  std::span<const DraftTask> tasks, DraftSource source) {
  const auto num_tasks = static_cast<int32_t>(tasks.size());
  const double plain_us = times_.predict(cost, step.load);
  StepLoad load = step.load;
  double us = plain_us, tokens = step.num_streams, best_gain = kWorthwhile;
  double redone_rows = 0, num_rows = 0;
  int32_t best_length = 0, affordable = 0;
  std::vector<double> chances(tasks.size(), 1);
  for (int32_t length = 1; length * num_tasks <= step.max_guesses; ++length) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Sequence& sequence = *tasks[i].sequence;
      if (length > tasks[i].max_tokens) continue;
      const double before = chances[i];
      chances[i] *= survival({source}, length - 1, sequence.draft_record);
      redone_rows += (length - 1) * (before - chances[i]);
      num_rows += 1;
      tokens += chances[i];
      load.add(sequence.num_known(), 1, 1, sequence.draws());
      --load.num_sequences;
    }
    us = std::max(us, times_.predict(cost, load));
    double whole_us = us + length * run_us_;
    if (length > kMaxModelLength || whole_us > plain_us * (1 + credit_)) break;
    affordable = length;
    if (step.redoes_rows && num_rows > 0) whole_us += redone_rows / num_rows * (us - plain_us);
    const double gain = tokens / step.num_streams * plain_us / whole_us;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best_length = length;
  }
  if (best_length > 0) return best_length;
  const size_t num_tried = std::min(static_cast<size_t>(affordable), kProbeGuesses);
  return static_cast<int32_t>(probe(&model_probe_, num_tried));
}

void DraftPolicy::drafted(int32_t num_runs, double us) {
  const double run_us = us / num_runs;
  run_us_ = run_us_ == 0 ? run_us : run_us_ + kTimeMemory * (run_us - run_us_);
}

void DraftPolicy::kept_up(const StepCost& cost, double us, double prompt_us) {
  if (!cost.has_learned()) return;
  StepLoad one;
  one.add(0, 1, 1, false);
  credit_ += (kCreditShare * prompt_us - us) / times_.predict(cost, one);
  credit_ = std::clamp(credit_, -kMostCredit, kMostCredit);
}

// Nothing seems to pay: now and then a few guesses, to learn whether that is still so. While probes
// come true the next step has another.
size_t DraftPolicy::probe(Probe* probe, size_t num_guesses) {
  if (probe->steps_left > 0) {
    --probe->steps_left;
    return 0;
  }
  is_probe_ = num_guesses > 0;
  probe->steps_left = kProbeRetry;
  return num_guesses;
}

void DraftPolicy::verified(const DraftGround& ground, int32_t num_guesses, int32_t num_accepted,
                           DraftRecord* own) {
  const int32_t num_tried = std::min(num_guesses, num_accepted + 1);
  for (int32_t place = 0; place < num_tried; ++place) {
    Share& share = shares_[static_cast<size_t>(ground.source)][strength_of(ground, place)];
    share.tried += 1;
    if (place < num_accepted) share.kept += 1;
    if (share.tried < kMemory) continue;
    share.tried /= 2;
    share.kept /= 2;
  }
  own->tried += static_cast<float>(num_tried);
  own->kept += static_cast<float>(num_accepted);
  if (own->tried > kOwnMemory) {
    own->kept *= kOwnMemory / own->tried;
    own->tried = kOwnMemory;
  }
  if (!is_probe_) return;
  const bool came_true = num_accepted == num_guesses;
  Probe& probe = is_match(ground) ? text_probe_ : model_probe_;
  probe.gap = came_true ? 0 : std::clamp(2 * probe.gap, kFirstProbeGap, kMaxProbeGap);
  probe.steps_left = probe.gap;
}

void DraftPolicy::touch() const {
  prefetch(this, sizeof(*this));
  times_.touch();
}

void DraftPolicy::took(const StepCost& cost, const TakenStep& step) {
  if (step.us <= 0) return;
  times_.observe(cost, step.load, step.us);
  credit_ += kCreditShare;
  if (step.load.num_rows > step.plain_load.num_rows || step.draft_us > 0) {
    const double expected = times_.predict(cost, step.load);
    const double us = std::clamp(step.us, expected / kOutlier, expected * kOutlier);
    credit_ += static_cast<double>(step.num_tokens) / step.num_streams -
               (us + step.draft_us) / times_.predict(cost, step.plain_load);
  }
  credit_ = std::clamp(credit_, -kMostCredit, kMostCredit);
}

}  // namespace headrace
