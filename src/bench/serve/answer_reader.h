// AnswerReader: a streamed answer as it comes: when each piece of text came, and what the server
// says that it counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace headrace::loads {

struct AnswerNotes {
  std::vector<TimeUs> pieces;  // one for each event that carried text
  std::string text;
  int64_t prompt_tokens = 0;  // 0: the server did not say
  int64_t output_tokens = 0;  // likewise
  int64_t cached_tokens = 0;
  std::optional<double> server_prompt_ms, server_answer_ms;  // llama-server's stamps
  bool done = false;                                         // it ended as such a stream ends
  std::string error;                                         // what is wrong with it, for people

  // What the server counted, else one for each piece.
  int64_t tokens() const {
    return output_tokens > 0 ? output_tokens : static_cast<int64_t>(pieces.size());
  }
};

class AnswerReader {
 public:
  void feed(std::string_view bytes, TimeUs now);
  // After the last byte; status: of the answer.
  AnswerNotes finish(long status);

 private:
  void event(std::string_view data, TimeUs now);

  AnswerNotes notes_;
  std::string line_;
  std::string head_;  // the first bytes, for errors
  bool any_event_ = false;
};

}  // namespace headrace::loads
