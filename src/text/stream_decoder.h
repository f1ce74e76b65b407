// StreamDecoder: token ids in, text out, as they come.
//
// Emits only whole UTF-8 characters; the concatenation of what it emits equals decoding all ids at
// once. Holds text back while it could be the beginning of a stop string, also across tokens.
// One per response; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace headrace {

struct StreamPiece {
  std::string text;      // to show now; may be empty
  bool stopped = false;  // a stop string was completed: nothing follows
  std::string stop;      // which
};

class StreamDecoder {
 public:
  // context_ids: the prompt's last ids, so that the first token joins as it would in one piece.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
                bool skip_special, bool include_stop_string = false,
                std::vector<int32_t> context_ids = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;

  StreamPiece push(int32_t id);
  // Everything still held back; an incomplete character becomes U+FFFD.
  StreamPiece finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace
