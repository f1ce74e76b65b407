// What a terminal needs: is it one, how wide is it, progress that suits it, numbers for people.
#pragma once

#include <termios.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

bool is_terminal(int descriptor);
// A terminal that can move its cursor: not one that TERM calls dumb.
bool has_cursor(int descriptor);

// Columns of the terminal behind a descriptor; 80 if it is none or does not say.
int terminal_columns(int descriptor);
// The beginning of a line that is to be redrawn on standard error's terminal: one that wraps could
// not be. Counts bytes as columns.
std::string cut_to_terminal(std::string line);
// Columns for help: those of standard output (COLUMNS has precedence), in 40..100.
int help_width();
// Characters are UTF-8 also where the environment says "C". Once, before threads start.
void use_utf8_locale();

// While it lives, what is typed into the terminal on standard input does not show: it would stand
// in the middle of an answer. It is kept for whoever reads next. Ctrl-C works.
class EchoOff {
 public:
  EchoOff();
  ~EchoOff();
  EchoOff(const EchoOff&) = delete;
  EchoOff& operator=(const EchoOff&) = delete;

 private:
  std::optional<termios> before_;
};

// Progress on standard error: a bar that redraws on a terminal, a line per tenth otherwise. One
// thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title, bool quiet = false);
  ~ProgressBar();  // on a terminal: clears the line
  void update(size_t done, size_t total);

 private:
  void draw(size_t done, size_t total);

  std::string title_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  int last_step_ = -1;
};

std::string format_count(int64_t count);  // "134,515,008"

}  // namespace headrace
