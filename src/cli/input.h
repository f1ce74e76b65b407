// What comes in on standard input that is not a terminal: the prompt of `run`, a text, messages.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace headrace {

// Everything up to the end of the input, without the newline that ends its last line. Waits; after
// two silent seconds it says so on standard error unless `quiet`. kExhausted beyond 64 MiB, kIo if
// it cannot be read.
Result<std::string> read_input(bool quiet);

// The arguments and the piped text as one text: arguments with spaces between, an empty line, the
// piped text. An argument `-` reads standard input also from a terminal.
Result<std::string> text_of_words_and_input(std::vector<std::string> words, bool quiet);

}  // namespace headrace
