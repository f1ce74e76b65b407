#include "cli/input.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/strings.h"
#include "cli/terminal.h"

namespace headrace {
namespace {

constexpr int kPatienceMs = 2000;
constexpr size_t kMaxBytes = size_t{64} << 20;

// An input that is silent may stay so for ever: whoever waits shall know for what.
void say_if_silent(bool quiet) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (quiet || poll(&input, 1, kPatienceMs) != 0) return;
  std::fputs("waiting for text on standard input (Ctrl-D ends it; none: < /dev/null)\n", stderr);
}

}  // namespace

Result<std::string> read_input(bool quiet) {
  if (!is_terminal(STDIN_FILENO)) say_if_silent(quiet);
  std::string text;
  std::array<char, 65536> chunk{};
  while (true) {
    const ssize_t count = read(STDIN_FILENO, chunk.data(), chunk.size());
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return make_error(ErrorCode::kIo, "cannot read standard input: {}", std::strerror(errno));
    }
    text.append(chunk.data(), static_cast<size_t>(count));
    if (text.size() > kMaxBytes) {
      return make_error(ErrorCode::kExhausted,
                        "standard input has more than {} of text, more than any context holds",
                        format_bytes(kMaxBytes));
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::string> text_of_words_and_input(std::vector<std::string> words, bool quiet) {
  const bool asked = std::erase(words, "-") > 0;
  std::string text = fmt::format("{}", fmt::join(words, " "));
  if (!asked && is_terminal(STDIN_FILENO)) return text;
  const std::string piped = TRY(read_input(quiet));
  if (text.empty() || piped.empty()) return text + piped;
  return text + "\n\n" + piped;
}

}  // namespace headrace
