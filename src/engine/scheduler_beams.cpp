// Beam searches: one sequence to all lists, several beams to blocks and steps.
//
// The sequence is its first beam and owns the others. They start, stop, wait and end together. What
// is computed of a beam is in a table of its own. A beam without a table branches off from the one
// that it has most in common with, as soon as that is computed: the second child of a beam before
// the next step, and all of them one after another when the search starts again or the rope table
// has changed. Who computes on the way stops where another branches off, since windows and states
// exist there only. The last token of each beam is computed in one step with those of the others.
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"

namespace headrace {

// The beam that another goes on from, and how many first tokens both have.
struct Scheduler::Donor {
  const Sequence* beam = nullptr;
  int64_t num_common = 0;
};

BeamLimits beam_limits_of(const SchedulerOptions& options) {
  BeamLimits limits;
  limits.max_width = std::min(kMaxBeams, options.max_sequences);
  limits.num_blocks = options.num_blocks;
  limits.max_chunk = options.max_batch_tokens;
  limits.rules = options.cache_rules;
  limits.shares_prompt = options.rope_epoch(1) == options.rope_epoch(options.max_context);
  return limits;
}

void Scheduler::begin_search(Sequence* sequence) const {
  const BeamParams& beams = sequence->request.beams;
  const int64_t longest =
      beam_limits_.longest(beams.width, sequence->num_prompt, sequence->max_known);
  CHECK(beams.width <= beam_limits_.max_width && longest == sequence->max_known,
        "{} beams of {} tokens after a prompt of {}", beams.width,
        sequence->max_known - sequence->num_prompt, sequence->num_prompt);
  sequence->search = std::make_unique<BeamSearch>(
      beams, static_cast<int32_t>(sequence->max_known - sequence->num_prompt));
}

// Of those with a table; ties to the first. All have the prompt in common.
Scheduler::Donor Scheduler::find_donor(const Sequence& head, const Sequence& beam) const {
  Donor donor;
  for (size_t i = 0; i < head.num_beams(); ++i) {
    const Sequence& other = head.beam(i);
    if (!other.has_table()) continue;
    const auto first = beam.tokens.begin() + beam.num_prompt;
    const auto differ = std::mismatch(first, beam.tokens.end(),
                                      other.tokens.begin() + beam.num_prompt, other.tokens.end());
    const int64_t num_common = differ.first - beam.tokens.begin();
    if (num_common > donor.num_common) donor = {&other, num_common};
  }
  CHECK(donor.beam != nullptr, "no beam of search {} has a table", head.id);
  return donor;
}

// Blocks that take_blocks() takes for it; 0 also when it is not its turn.
int64_t Scheduler::missing_of(const Sequence& head, const Sequence& beam) const {
  if (beam.has_table()) return kv_.missing(beam.num_known(), beam.table);
  const Donor donor = find_donor(head, beam);
  if (donor.beam->num_computed < donor.num_common) return 0;
  if (kv_.can_branch(donor.beam->table, donor.num_common)) {
    return kv_.missing_of_branch(donor.num_common, beam.num_known());
  }
  return most_blocks(options_.cache_rules, beam.num_known(), options_.max_batch_tokens);
}

// Blocks for what the beam knows; for one without a table, when it is its turn. False: they are
// short, and nothing has changed.
bool Scheduler::take_blocks(const Sequence& head, Sequence* beam) {
  if (beam->has_table()) return kv_.reserve(beam->num_known(), &beam->table);
  const Donor donor = find_donor(head, *beam);
  if (donor.beam->num_computed < donor.num_common) return true;
  const bool branches = kv_.can_branch(donor.beam->table, donor.num_common);
  if (branches && missing_of(head, *beam) > kv_.pool().num_available()) return false;
  begin_table(beam);
  if (branches) {
    kv_.branch(donor.beam->table, donor.num_common, &beam->table);
    beam->num_computed = donor.num_common;
  } else {  // under a rope table of its own each beam is alone
    beam->num_computed = kv_.match(findable(*beam), &beam->table);
  }
  if (kv_.reserve(beam->num_known(), &beam->table)) return true;
  kv_.release(&beam->table);
  beam->num_computed = 0;
  return false;
}

// How many of its next tokens a step may compute. Of one among several beams not the last, unless
// that is all: then the others are there too.
int64_t Scheduler::num_next(const Sequence& sequence) const {
  const int64_t gap = sequence.gap();
  if (sequence.request.beams.width == 0 || gap == 1) return gap;
  const Sequence& head = *find(sequence.id);
  int64_t count = head.num_beams() == 1 ? gap : gap - 1;
  for (size_t i = 0; i < head.num_beams(); ++i) {
    if (head.beam(i).has_table()) continue;
    const Donor donor = find_donor(head, head.beam(i));
    if (donor.beam == &sequence && donor.num_common >= sequence.num_computed) {
      count = std::min(count, donor.num_common - sequence.num_computed);
    }
  }
  return count;
}

// The next token of all beams, or of none.
void Scheduler::plan_next_of(Sequence* head) {
  for (size_t i = 0; i < head->num_beams(); ++i) {
    const Sequence& beam = head->beam(i);
    if (!beam.lacks_one() || !kv_.covers(beam.num_known(), beam.table)) return;
  }
  for (size_t i = 0; i < head->num_beams(); ++i) {
    add_span(&head->beam(i), options_.max_batch_tokens - plan_.num_tokens,
             options_.max_logit_rows - plan_.num_logit_rows);
  }
}

void Scheduler::commit_beam(Sequence* head, size_t span_idx, SpanResult* result,
                            std::vector<Event>* events) {
  if (result->failed() && head->failure.empty()) head->failure = std::move(result->failure);
  if (!head->failure.empty() || head->ending != FinishReason::kNone) return;
  const Span& span = plan_.spans[span_idx];
  for (size_t i = 0; i < head->num_beams(); ++i) {
    Sequence* beam = &head->beam(i);
    if (beam != plan_.sequences[span_idx]) continue;
    advance(beam, span, *result, /*num_accepted=*/0);
    if (i == 0) take_scores(head, span, result, events);
    if (span.num_sampled > 0) beam->candidates = std::move(result->sampled[0].candidates);
  }
}

// When all spans of the step are committed.
void Scheduler::commit_search(Sequence* head, TimeUs now, std::vector<Event>* events) {
  if (!head->failure.empty()) return fail_search(head, now, events);
  if (head->ending != FinishReason::kNone) return finish(head, head->ending, now, events);
  if (head->gap() == 0) advance_search(head, now, events);
}

void Scheduler::fail_search(Sequence* head, TimeUs now, std::vector<Event>* events) {
  for (const auto& beam : head->other_beams) kv_.discard(&beam->table);
  fail(head, std::move(head->failure), now, events);
}

void Scheduler::advance_search(Sequence* head, TimeUs now, std::vector<Event>* events) {
  if (head->times.first_token == 0) head->times.first_token = now;
  std::vector<std::vector<BeamCandidate>> candidates;
  for (size_t i = 0; i < head->num_beams(); ++i) {
    candidates.push_back(std::move(head->beam(i).candidates));
  }
  stats_.generation_tokens += candidates.size();
  head->search->advance(candidates);
  if (head->search->is_done()) return finish_search(head, now, events);
  replace_beams(head);
  const bool is_stale = options_.rope_epoch(head->num_known()) != head->rope_epoch;
  for (size_t i = 0; i < head->num_beams(); ++i) {
    update_epoch(&head->beam(i));
    if (is_stale && i > 0) kv_.release(&head->beam(i).table);  // it branches off again
  }
}

// By what lives on. The first child of a beam goes on in its table; who has none leaves it.
void Scheduler::replace_beams(Sequence* head) {
  struct Line {
    std::vector<int32_t> tokens;
    BlockTable table;
    int64_t num_computed;
  };
  std::vector<Line> lines;
  for (const BeamSearch::Beam& child : head->search->beams()) {
    Sequence& parent = head->beam(static_cast<size_t>(child.parent));
    Line line{{}, std::exchange(parent.table, {}), std::exchange(parent.num_computed, 0)};
    line.tokens.reserve(parent.tokens.size() + 1);
    line.tokens.assign(parent.tokens.begin(), parent.tokens.end());
    line.tokens.push_back(child.token_id);
    lines.push_back(std::move(line));
  }
  for (size_t i = 0; i < head->num_beams(); ++i) kv_.release(&head->beam(i).table);
  head->other_beams.resize(lines.size() - 1);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 && head->other_beams[i - 1] == nullptr) head->other_beams[i - 1] = make_beam(*head);
    Sequence& beam = head->beam(i);
    beam.beam_idx = static_cast<int32_t>(i);
    beam.tokens = std::move(lines[i].tokens);
    beam.table = std::move(lines[i].table);
    beam.num_computed = lines[i].num_computed;
  }
}

std::unique_ptr<Sequence> Scheduler::make_beam(const Sequence& head) {
  auto beam = std::make_unique<Sequence>();
  beam->id = head.id;
  beam->order = head.order;
  beam->place_us = head.place_us;
  beam->client = head.client;
  beam->request = head.request;
  beam->num_prompt = head.num_prompt;
  beam->max_known = head.max_known;
  beam->rope_epoch = head.rope_epoch;
  beam->root = head.root;
  beam->prompt_reported = true;
  return beam;
}

void Scheduler::finish_search(Sequence* head, TimeUs now, std::vector<Event>* events) {
  std::vector<BeamHypothesis> best = head->search->best();
  const int32_t num_wanted = head->request.beams.num_returned;
  if (std::ssize(best) < num_wanted) {
    finish(head, FinishReason::kError, now, events);
    events->back().error =
        make_error(ErrorCode::kUnprocessable,
                   "the beam search found {} of {} outputs, and no token is left that may come",
                   best.size(), num_wanted);
    return;
  }
  // What its session remembers.
  head->tokens.resize(static_cast<size_t>(head->num_prompt));
  head->tokens.insert(head->tokens.end(), best[0].token_ids.begin(), best[0].token_ids.end());
  const int32_t stop_id = best[0].stop_id;
  finish(head, stop_id < 0 ? FinishReason::kLength : FinishReason::kStop, now, events);
  Event& event = events->back();
  event.stop_id = stop_id;
  for (const BeamHypothesis& each : best) {
    event.usage.output_tokens += static_cast<int32_t>(each.token_ids.size());
  }
  event.hypotheses = std::move(best);
}

}  // namespace headrace
