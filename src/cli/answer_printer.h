// AnswerPrinter: an answer on standard output as it is made: on a terminal wrapped between words
// and without control characters, else byte for byte.
#pragma once

#include <optional>
#include <string_view>

#include "cli/word_wrap.h"

namespace headrace {

class AnswerPrinter {
 public:
  AnswerPrinter();  // for one answer

  // False if it does not arrive.
  bool print(std::string_view piece);
  // The end of the answer: what is held back, and then `end`.
  bool finish(std::string_view end);

 private:
  std::optional<WordWrap> wrap_;  // on a terminal
};

}  // namespace headrace
