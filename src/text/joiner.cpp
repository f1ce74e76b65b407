#include "text/joiner.h"

#include <utility>

namespace headrace {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr uint8_t kLowestContinuation = 0x80;
constexpr uint8_t kHighestContinuation = 0xBF;

}  // namespace

void Utf8Joiner::push(std::string_view bytes, std::string* text) {
  for (const char byte : bytes) push_byte(static_cast<uint8_t>(byte), text);
}

void Utf8Joiner::finish(std::string* text) {
  if (num_pending_ > 0) give_up(text);
}

void Utf8Joiner::push_byte(uint8_t byte, std::string* text) {
  if (num_pending_ > 0) {
    if (byte >= next_low_ && byte <= next_high_) {
      pending_[num_pending_++] = static_cast<char>(byte);
      next_low_ = kLowestContinuation;
      next_high_ = kHighestContinuation;
      if (num_pending_ == num_needed_) {
        text->append(pending_, num_pending_);
        num_pending_ = 0;
      }
      return;
    }
    give_up(text);
  }
  start(byte, text);
}

// The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF
// (Unicode standard, table 3-7).
void Utf8Joiner::start(uint8_t byte, std::string* text) {
  if (byte < 0x80) {
    text->push_back(static_cast<char>(byte));
    return;
  }
  next_low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : kLowestContinuation;
  next_high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : kHighestContinuation;
  if (byte >= 0xC2 && byte <= 0xDF) {
    num_needed_ = 2;
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    num_needed_ = 3;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    num_needed_ = 4;
  } else {
    text->append(kReplacement);
    return;
  }
  pending_[0] = static_cast<char>(byte);
  num_pending_ = 1;
}

void Utf8Joiner::give_up(std::string* text) {
  const size_t num_marks = mark_each_byte_ ? num_pending_ : 1;
  for (size_t i = 0; i < num_marks; ++i) text->append(kReplacement);
  num_pending_ = 0;
}

TokenJoiner::TokenJoiner(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      scheme_(tokenizer.decode_scheme()),
      utf8_(scheme_.mark_each_byte),
      num_blanks_to_strip_(scheme_.strip_start_blanks) {}

void TokenJoiner::push(int32_t id, std::string* text) {
  if (!tokenizer_.decodes(id, skip_special_)) return;
  const bool is_first = std::exchange(is_first_token_, false) && scheme_.first_differs;
  const size_t from = text->size();
  utf8_.push(is_first ? tokenizer_.first_token_bytes(id, skip_special_)
                      : tokenizer_.token_bytes(id, skip_special_),
             text);
  strip_start(from, text);
}

void TokenJoiner::finish(std::string* text) {
  const size_t from = text->size();
  utf8_.finish(text);
  strip_start(from, text);
}

void TokenJoiner::strip_start(size_t from, std::string* text) {
  while (num_blanks_to_strip_ > 0 && text->size() > from) {
    if ((*text)[from] != ' ') {
      num_blanks_to_strip_ = 0;
      return;
    }
    text->erase(from, 1);
    --num_blanks_to_strip_;
  }
}

}  // namespace headrace
