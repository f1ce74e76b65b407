// TextPosition: where the tokens of a choice stand in the text that is sent: characters before
// each.
//
// Special tokens that the text does not show take no place in it, nor do blanks that decoding takes
// off its start. One per choice; one thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace headrace {

class TextPosition {
 public:
  // echo_text: what the answer repeats of the prompt, maybe nothing; it outlives this. output: a
  // decoder of the answer that holds nothing back.
  TextPosition(const Tokenizer& tokenizer, std::string_view echo_text, StreamDecoder output);

  // The prompt's tokens in order, then the answer's.
  int64_t of_prompt(int32_t id);
  int64_t of_output(int32_t id);

 private:
  const Tokenizer& tokenizer_;
  const std::string_view echo_text_;
  StreamDecoder prompt_;
  StreamDecoder output_;
  size_t echo_bytes_ = 0;        // of the prompt's tokens so far
  int64_t echo_characters_ = 0;  // the same
  int64_t next_;                 // of the answer's next token
};

}  // namespace headrace
