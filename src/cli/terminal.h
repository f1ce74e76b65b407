// What a terminal needs: is it one, and progress that suits it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

bool is_terminal(int descriptor);

// Progress on standard error: a bar that redraws on a terminal, a line per tenth otherwise. One
// thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title, bool quiet = false);
  ~ProgressBar();  // ends the line
  void update(size_t done, size_t total);

 private:
  void draw(size_t done, size_t total);

  std::string title_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  int last_step_ = -1;
};

std::string format_bytes(size_t num_bytes);  // "93.8 MiB"

}  // namespace headrace
