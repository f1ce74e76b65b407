// What bounds waiting: how often one that waits for blocks is passed, what the protected may take
// so that each of them can finish, and until when a request may wait or run at all.
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"

namespace headrace {
namespace {

constexpr size_t kMaxPassed = 8;  // that are tried in one plan and wait for blocks

}  // namespace

// A slot is free, so only blocks are lacking, which a smaller one may have; or slots of a search.
bool Scheduler::may_be_passed(const Sequence& sequence) const {
  return num_slots_ < options_.max_sequences && passed_.size() < kMaxPassed &&
         sequence.num_passed < options_.max_passes;
}

// Not past one that was passed often enough, nor from a client that runs some past one of a client
// that runs none.
bool Scheduler::may_pass(const Sequence& sequence) const {
  const bool has_none = room_.has_none_running(sequence);
  return std::all_of(passed_.begin(), passed_.end(), [&](const Sequence* each) {
    return each->num_passed < options_.max_passes && (has_none || !room_.has_none_running(*each));
  });
}

// Blocks in its table, shared with others or not; those that several of its beams hold count once.
int64_t Scheduler::num_held(const Sequence& sequence) {
  int64_t held = 0;
  const auto block_of = [&](size_t beam, size_t c, size_t i) {
    const BlockTable& table = sequence.beam(beam).table;
    const bool has_block = c < table.columns.size() && i < table.columns[c].blocks.size();
    return has_block ? table.columns[c].blocks[i] : -1;
  };
  for (size_t beam = 0; beam < sequence.num_beams(); ++beam) {
    const BlockTable& table = sequence.beam(beam).table;
    const std::vector<TableColumn>& columns = table.columns;
    for (size_t c = 0; c < columns.size(); ++c) {
      held += columns[c].spare >= 0 ? 1 : 0;
      held += table.ahead_of(c) >= 0 ? 1 : 0;
      for (auto i = static_cast<size_t>(columns[c].first); i < columns[c].blocks.size(); ++i) {
        const int32_t block_id = columns[c].blocks[i];
        bool is_counted = block_id < 0;
        for (size_t b = 0; b < beam && !is_counted; ++b) is_counted = block_of(b, c, i) == block_id;
        held += is_counted ? 0 : 1;
      }
    }
  }
  return held;
}

// That it may come to hold.
int64_t Scheduler::most_blocks_of(const Sequence& sequence) const {
  if (sequence.search == nullptr) {
    return most_blocks(options_.cache_rules, sequence.max_known, options_.max_batch_tokens);
  }
  return beam_limits_.most_blocks(sequence.num_slots(), sequence.num_prompt, sequence.max_known);
}

// The protected keep what they hold, so they could hold all blocks and each want one more. This is
// Dijkstra's banker: in the order of their starts, each can have all that it may become while those
// after it keep what they hold. What a sequence takes can break that only for those before it. The
// first is never refused: blocks of the unprotected are taken from them.
bool Scheduler::may_take(const Sequence& sequence, int64_t num_blocks) const {
  if (num_blocks == 0 || !is_protected(sequence)) return true;
  int64_t held_after = num_blocks + num_held(sequence);
  bool is_before = !sequence.running;
  for (auto each = shielded_.rbegin(); each != shielded_.rend(); ++each) {
    if (*each == &sequence) {
      is_before = true;
      continue;
    }
    if (is_before && held_after + most_blocks_of(**each) > options_.num_blocks) return false;
    held_after += num_held(**each);
  }
  return true;
}

// The first of the protected is the first of its client: it must not give way, since for others
// that stand still nothing changes in this plan.
void Scheduler::rank_running() {
  charge();
  scratch_ = running_;
  if (!shielded_.empty()) {
    const auto first = std::find(scratch_.begin(), scratch_.end(), shielded_.front());
    std::rotate(scratch_.begin(), first, first + 1);
  }
  room_.rank(scratch_);
}

// Into scratch_: who takes blocks, and where these do not suffice all that run, in their order: the
// last give way first. Who has its blocks already takes and loses nothing where there are enough.
void Scheduler::list_for_blocks() {
  scratch_.clear();
  int64_t num_missing = 0;
  bool searches = false;  // their beams take blocks from each other: all are looked at
  for (Sequence* sequence : running_) {
    searches |= sequence->search != nullptr;
    const int64_t missing = kv_.missing(sequence->num_known(), sequence->table);
    if (missing > 0) scratch_.push_back(sequence);
    num_missing += missing;
  }
  const bool suffices = !searches && num_missing <= kv_.pool().num_available();
  if (suffices && scratch_.size() <= 1) return;
  rank_running();
  scratch_ = running_;
  if (suffices) {
    std::erase_if(scratch_, [this](const Sequence* sequence) {
      return kv_.covers(sequence->num_known(), sequence->table);
    });
  }
  std::sort(scratch_.begin(), scratch_.end(), [this](const Sequence* a, const Sequence* b) {
    if (is_protected(*a) != is_protected(*b)) return is_protected(*a);
    if (is_protected(*a)) return a->shield < b->shield;
    return a->standing != b->standing ? a->standing < b->standing : a->order < b->order;
  });
}

// What the step that is committed is charged by, when all that it computed for still run.
void Scheduler::owe_charge(TimeUs now) {
  charged_rows_.clear();
  for (size_t i = 0; i < plan_.spans.size(); ++i) {
    charged_rows_.push_back({&WaitingRoom::of(*planned_[i]), plan_.spans[i].num_rows});
  }
  charged_us_ = now - planned_us_;
}

// To those whose rows the step computed, and who hold blocks meanwhile. Before anybody starts or
// ends, and before shares are looked at.
void Scheduler::charge() {
  const std::optional<TimeUs> took_us = std::exchange(charged_us_, std::nullopt);
  if (!took_us) return;
  for (const RowsOf& rows : charged_rows_) WaitingRoom::add_step(rows.client, rows.num_rows, 0);
  for (const Sequence* sequence : running_) {
    // Beams have the whole blocks of their prompt in common.
    const int64_t all = blocks_for(sequence->num_known());
    const int64_t own = all - sequence->num_prompt / kBlockTokens;
    const int64_t num_blocks = all + std::ssize(sequence->other_beams) * own;
    WaitingRoom::add_step(&WaitingRoom::of(*sequence), 0, num_blocks * kv_.num_columns());
  }
  room_.charge(running_, *took_us, options_.num_blocks);
}

void Scheduler::set_limits(Sequence* sequence) const {
  const Request& request = sequence->request;
  const TimeUs submitted = sequence->times.submitted;
  const TimeUs arrived = request.arrived_us > 0 ? request.arrived_us : submitted;
  sequence->place_us = submitted + request.priority * options_.priority_age;
  if (request.max_queue_us > 0) sequence->queue_ends = submitted + request.max_queue_us;
  if (request.deadline_us > 0) sequence->ends = arrived + request.deadline_us;
}

void Scheduler::watch(const Sequence& sequence) {
  if (sequence.queue_ends != 0) limits_.emplace(sequence.queue_ends, sequence.id);
  if (sequence.ends != 0) limits_.emplace(sequence.ends, sequence.id);
}

void Scheduler::unwatch(const Sequence& sequence) {
  limits_.erase({sequence.queue_ends, sequence.id});
  limits_.erase({sequence.ends, sequence.id});
}

std::vector<RequestId> Scheduler::take_expired(TimeUs now) {
  std::vector<RequestId> expired;
  while (!limits_.empty() && limits_.begin()->first <= now) {
    const auto [time, id] = *limits_.begin();
    limits_.erase(limits_.begin());
    const Sequence& sequence = *find(id);
    const bool has_started = sequence.times.started != 0;
    const bool is_known = std::find(expired.begin(), expired.end(), id) != expired.end();
    if ((time == sequence.ends || !has_started) && !is_known) expired.push_back(id);
  }
  return expired;
}

Error Scheduler::expired_error(const Sequence& sequence) {
  const bool in_queue = sequence.times.started == 0 && sequence.queue_ends != 0 &&
                        (sequence.ends == 0 || sequence.queue_ends <= sequence.ends);
  if (in_queue) {
    return {
        ErrorCode::kUnavailable,
        fmt::format("the request has waited for {} ms, as long as it allowed, and has not begun",
                    sequence.request.max_queue_us / 1000),
        "try again later, or allow more", "max_queue_ms"};
  }
  return {
      ErrorCode::kUnavailable,
      fmt::format("the answer is not complete {} ms after the request came, its deadline; it has "
                  "{} tokens",
                  sequence.request.deadline_us / 1000, sequence.num_output()),
      "ask for fewer tokens, or allow more time", "deadline_ms"};
}

}  // namespace headrace
