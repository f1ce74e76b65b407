// LineReader: lines from standard input, with editing and history on a terminal (libedit).
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace headrace {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Shows the prompt (on a terminal) and waits for a line, without its newline. Nothing at the end
  // of the input. Ctrl-C gives an empty line.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct State;
  std::unique_ptr<State> state_;  // null when standard input is not a terminal
};

}  // namespace headrace
