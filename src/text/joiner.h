// Utf8Joiner: bytes of tokens in, whole UTF-8 characters out.
//
// Both Tokenizer::decode and StreamDecoder go through this class, so that streamed text is the same
// as text decoded at once. Bytes that are no part of a character become U+FFFD: one for each
// maximal broken sequence (byte-level vocabularies, as WHATWG and Rust decode), or one for each
// byte (byte tokens of SentencePiece vocabularies). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace headrace {

class Utf8Joiner {
 public:
  explicit Utf8Joiner(bool mark_each_byte) : mark_each_byte_(mark_each_byte) {}

  // Appends to `text` what became whole.
  void push(std::string_view bytes, std::string* text);
  // The text is over: an incomplete character is broken.
  void finish(std::string* text);

 private:
  void push_byte(uint8_t byte, std::string* text);
  void start(uint8_t byte, std::string* text);
  void give_up(std::string* text);

  bool mark_each_byte_;
  char pending_[4] = {};
  size_t num_pending_ = 0;
  size_t num_needed_ = 0;  // bytes of the pending character
  uint8_t next_low_ = 0;   // range of the next byte that continues it
  uint8_t next_high_ = 0;
};

// TokenJoiner: token ids in, text out, by a tokenizer's decode scheme. Ids out of range add
// nothing.
class TokenJoiner {
 public:
  TokenJoiner(const Tokenizer& tokenizer, bool skip_special);

  void push(int32_t id, std::string* text);
  void finish(std::string* text);

 private:
  void strip_start(size_t from, std::string* text);

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  const DecodeScheme scheme_;
  Utf8Joiner utf8_;
  bool is_first_token_ = true;
  uint32_t num_blanks_to_strip_;
};

}  // namespace headrace
