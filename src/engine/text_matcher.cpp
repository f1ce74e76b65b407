#include "engine/text_matcher.h"

#include <algorithm>

#include "base/check.h"
#include "base/prefetch.h"

namespace headrace {
namespace {

constexpr int32_t kMark = -1;
constexpr int kMaxPlaces = 24;  // places in one search
constexpr size_t kFirstSlots = 1024;

}  // namespace

TextMatcher::TextMatcher(std::span<const int32_t> reference) : newest_(kFirstSlots, -1) {
  append(reference);
  if (!reference.empty()) {
    text_.push_back(kMark);
    previous_.push_back(-1);
  }
  first_ = std::ssize(text_);
}

void TextMatcher::append(std::span<const int32_t> token_ids) {
  CHECK(token_ids.size() + text_.size() < INT32_MAX, "a text of {} tokens", token_ids.size());
  for (const int32_t id : token_ids) {
    text_.push_back(id);
    previous_.push_back(-1);
    if (text_.size() > newest_.size()) {
      grow();
    } else {
      link(std::ssize(text_) - 1);
    }
  }
}

// Slots as many as tokens, so that few places share one by chance.
void TextMatcher::grow() {
  newest_.assign(2 * newest_.size(), -1);
  for (int64_t position = 0; position < std::ssize(text_); ++position) link(position);
}

// Of kMinMatch tokens.
size_t TextMatcher::slot_of(const int32_t* first) const {
  uint64_t sum = 0;
  for (int32_t i = 0; i < kMinMatch; ++i) {
    sum = (sum + static_cast<uint32_t>(first[i])) * 0x9E3779B97F4A7C15u;
  }
  return static_cast<size_t>(sum >> 32) & (newest_.size() - 1);
}

void TextMatcher::link(int64_t position) {
  if (position + 1 < kMinMatch) return;
  int32_t& newest = newest_[slot_of(text_.data() + position + 1 - kMinMatch)];
  previous_[static_cast<size_t>(position)] = newest;
  newest = static_cast<int32_t>(position);
}

// Of a match that ends with this token and is the one found last and all since; 0: it is not.
int32_t TextMatcher::length_going_on(int64_t last) const {
  const int64_t grown = std::ssize(text_) - found_end_;
  if (found_.length == 0 || last + 1 != found_.next + grown) return 0;
  const auto next = text_.begin() + found_.next;
  if (!std::equal(next, next + grown, text_.begin() + found_end_)) return 0;
  return static_cast<int32_t>(std::min<int64_t>(kMaxMatch, found_.length + grown));
}

// Tokens that are the same, going back from this one and from the last.
int32_t TextMatcher::match_length(int64_t last) const {
  if (const int32_t length = length_going_on(last); length > 0) return length;
  const int64_t end = std::ssize(text_) - 1;
  const int64_t most = std::min<int64_t>({kMaxMatch, last + 1, size()});
  int32_t length = 0;
  while (length < most &&
         text_[static_cast<size_t>(last - length)] == text_[static_cast<size_t>(end - length)]) {
    ++length;
  }
  return length;
}

TextMatcher::Match TextMatcher::find() {
  Match best;
  if (size() < kMinMatch) return best;
  int32_t place = previous_.back();
  for (int i = 0; i < kMaxPlaces && place >= 0; ++i) {
    const int32_t length = match_length(place);
    if (length >= kMinMatch && length > best.length) best = {length, int64_t{place} + 1};
    if (best.length == kMaxMatch) break;
    place = previous_[static_cast<size_t>(place)];
  }
  found_end_ = std::ssize(text_);
  return found_ = best;
}

void TextMatcher::copy(const Match& match, int32_t max_tokens,
                       std::vector<int32_t>* token_ids) const {
  if (match.length == 0) return;
  const int64_t period = std::ssize(text_) - match.next;
  for (int64_t i = 0; i < max_tokens; ++i) {
    const int32_t id = text_[static_cast<size_t>(match.next + i % period)];
    if (id == kMark) return;
    token_ids->push_back(id);
  }
}

TextMatcher::Ahead TextMatcher::look_ahead(std::span<const int32_t> token_ids) const {
  constexpr size_t kBefore = kMinMatch - 1;
  Ahead ahead;
  if (text_.size() < kBefore) return ahead;
  std::array<int32_t, kBefore + std::tuple_size_v<decltype(Ahead::slots)>> texts;
  std::copy(text_.end() - kBefore, text_.end(), texts.begin());
  const size_t count = std::min(token_ids.size(), ahead.slots.size());
  std::copy_n(token_ids.begin(), count, texts.begin() + kBefore);
  for (; ahead.num_slots < count; ++ahead.num_slots) {
    const size_t slot = slot_of(texts.data() + ahead.num_slots);
    ahead.slots[ahead.num_slots] = static_cast<uint32_t>(slot);
  }
  return ahead;
}

void TextMatcher::touch_ends(const Ahead& ahead) const {
  const int64_t end = std::ssize(text_);
  for (const int64_t position : {end, found_.length > 0 ? found_.next : end}) {
    prefetch(text_.data() + position, sizeof(int32_t));
    prefetch(previous_.data() + position, sizeof(int32_t));
  }
  for (uint32_t i = 0; i < ahead.num_slots; ++i) {
    prefetch<PrefetchFor::kWrite>(newest_.data() + ahead.slots[i], sizeof(int32_t));
  }
}

}  // namespace headrace
