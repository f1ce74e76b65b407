#include "server/api/parts/reasoning_gate.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

constexpr int32_t kMaxBlanks = 2;

void allow(std::span<uint64_t> mask, int32_t id) {
  const auto at = static_cast<size_t>(id);
  if (at / 64 < mask.size()) mask[at / 64] |= uint64_t{1} << (at % 64);
}

void forbid(std::span<uint64_t> mask, int32_t id) {
  const auto at = static_cast<size_t>(id);
  if (at / 64 < mask.size()) mask[at / 64] &= ~(uint64_t{1} << (at % 64));
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text, false);
  return ids.ok() ? std::move(ids).value() : std::vector<int32_t>();
}

}  // namespace

ReasoningGate::ReasoningGate(const Tokenizer& tokenizer, GateOptions options,
                             std::shared_ptr<Constraint> inner)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      inner_(std::move(inner)),
      open_ids_(ids_of(tokenizer, options_.open)),
      close_ids_(ids_of(tokenizer, options_.close)) {
  for (const std::string_view blank : {"\n", "\n\n"}) {
    const std::vector<int32_t> ids = ids_of(tokenizer, blank);
    if (ids.size() == 1) blank_ids_.push_back(ids[0]);
  }
  State first;
  if (options_.starts_inside) first.phase = Phase::kInside;
  check_budget(first);
  states_.push_back(std::move(first));
}

void ReasoningGate::fill_mask(std::span<uint64_t> mask) {
  const State& state = states_.back();
  if (state.phase == Phase::kOpening || state.phase == Phase::kClosing) {
    const auto& ids = state.phase == Phase::kOpening ? open_ids_ : close_ids_;
    std::fill(mask.begin(), mask.end(), 0);
    return allow(mask, ids[state.num_forced]);
  }
  if (inner_ == nullptr || state.phase == Phase::kInside) {
    std::fill(mask.begin(), mask.end(), ~uint64_t{0});
    if (inner_ == nullptr) return;
    for (const int32_t id : options_.end_ids) forbid(mask, id);
    return;
  }
  inner_->fill_mask(mask);
  if (num_inner_ > 0 || state.num_blank >= kMaxBlanks) return;
  for (const int32_t id : blank_ids_) allow(mask, id);
  if (state.phase == Phase::kBefore && !open_ids_.empty()) allow(mask, open_ids_[0]);
}

bool ReasoningGate::is_blank_id(int32_t id) const {
  return std::find(blank_ids_.begin(), blank_ids_.end(), id) != blank_ids_.end();
}

// Newlines before what the answer is held to are none of it.
bool ReasoningGate::skips_blank(const State& state, int32_t id) const {
  return inner_ != nullptr && num_inner_ == 0 && state.num_blank < kMaxBlanks && is_blank_id(id);
}

void ReasoningGate::accept(int32_t token_id) {
  State next = states_.back();
  const bool held = inner_ != nullptr;
  if (next.phase == Phase::kBefore && held && !open_ids_.empty() && token_id == open_ids_[0] &&
      num_inner_ == 0) {
    next.num_forced = 1;
    next.phase = open_ids_.size() == 1 ? Phase::kInside : Phase::kOpening;
  } else if (next.phase == Phase::kBefore && !held) {
    look_for_open(next, token_id);
  } else if (next.phase == Phase::kOpening) {
    if (++next.num_forced == open_ids_.size()) next.phase = Phase::kInside;
  } else if (next.phase == Phase::kClosing) {
    if (++next.num_forced == close_ids_.size()) next.phase = Phase::kBehind;
  } else if (next.phase == Phase::kInside) {
    look_for_close(next, token_id);
  } else if (skips_blank(next, token_id)) {
    ++next.num_blank;
  } else {
    if (held) inner_->accept(token_id);
    ++num_inner_;
    return;
  }
  check_budget(next);
  states_.push_back(std::move(next));
}

// Without anything that holds the answer: the text tells.
void ReasoningGate::look_for_open(State& state, int32_t id) const {
  state.tail += tokenizer_.token_bytes(id, false);
  const size_t at = state.tail.find(options_.open);
  if (at != std::string::npos) {
    state.phase = Phase::kInside;
    state.tail.erase(0, at + options_.open.size());
  } else if (state.tail.size() > options_.open.size() + kMaxBlanks) {
    state.phase = Phase::kBehind;  // an answer without reasoning
    state.tail.clear();
  }
}

void ReasoningGate::look_for_close(State& state, int32_t id) const {
  ++state.num_inside;
  state.tail += tokenizer_.token_bytes(id, false);
  if (state.tail.find(options_.close) != std::string::npos) {
    state.phase = Phase::kBehind;
    state.tail.clear();
  } else if (state.tail.size() > options_.close.size()) {
    state.tail.erase(0, state.tail.size() - options_.close.size());
  }
}

void ReasoningGate::check_budget(State& state) const {
  const bool spent = state.phase == Phase::kInside && options_.max_tokens &&
                     state.num_inside >= *options_.max_tokens;
  if (!spent || close_ids_.empty()) return;
  state.phase = Phase::kClosing;
  state.num_forced = 0;
}

bool ReasoningGate::is_behind() const {
  return inner_ != nullptr && (states_.back().phase == Phase::kBehind || num_inner_ > 0);
}

bool ReasoningGate::is_finished() const { return is_behind() && inner_->is_finished(); }

void ReasoningGate::propose(int32_t max_tokens, std::vector<int32_t>* draft) {
  const State& state = states_.back();
  if (is_behind()) return inner_->propose(max_tokens, draft);
  if (state.phase != Phase::kOpening && state.phase != Phase::kClosing) return;
  const auto& ids = state.phase == Phase::kOpening ? open_ids_ : close_ids_;
  const size_t end = std::min(ids.size(), state.num_forced + static_cast<size_t>(max_tokens));
  for (size_t i = state.num_forced; i < end; ++i) draft->push_back(ids[i]);
}

void ReasoningGate::rollback(int32_t num_tokens) {
  const int64_t of_inner = std::min<int64_t>(num_inner_, num_tokens);
  if (of_inner > 0 && inner_ != nullptr) inner_->rollback(static_cast<int32_t>(of_inner));
  num_inner_ -= of_inner;
  for (int64_t i = of_inner; i < num_tokens; ++i) {
    CHECK(states_.size() > 1, "{} tokens are taken back, more than came", num_tokens);
    states_.pop_back();
  }
}

}  // namespace headrace
