// LineReader: lines from standard input, with editing and history on a terminal (libedit).
//
// Text that is pasted into a terminal with bracketed paste stays one line with newlines in it. One
// reader at a time, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace headrace {

enum class ReadEnd : uint8_t { kLine, kInterrupted, kEndOfInput };

struct ReadLine {
  ReadEnd end = ReadEnd::kLine;
  std::string text;  // kLine: without the newline that ended it
};

class LineReader {
 public:
  // interrupt: readable when reading shall end (InterruptGuard::descriptor); outlives this.
  explicit LineReader(int interrupt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Does a person type here? Then prompts are shown.
  bool is_interactive() const { return state_ != nullptr; }
  // Shows the prompt (on a terminal) and waits for a line. An interruption gives kInterrupted and
  // drops what was typed.
  ReadLine read(const std::string& prompt);

 private:
  ReadLine read_piped();

  struct State;
  std::unique_ptr<State> state_;  // null when standard input is not a terminal
  int interrupt_;
  std::string unread_;  // of a pipe: what has come behind the last line
};

}  // namespace headrace
