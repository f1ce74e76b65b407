#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/terminal.h"

namespace headrace {
namespace {

int first_error = 0;  // errno of the first write that failed

// What is printed stays here until it is flushed, mostly until the end: then the reason of a
// failure is known. A stream that fails in between forgets it.
std::array<char, size_t{256} << 10> held_output;

void note_failure() {
  if (first_error == 0) first_error = errno != 0 ? errno : EIO;
}

}  // namespace

void prepare_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // Lowest free number: this one. Opened the wrong way round for output, so that writes fail.
    const int flags = descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", flags) != descriptor) return;
  }
  if (!is_terminal(STDOUT_FILENO)) {
    std::setvbuf(stdout, held_output.data(), _IOFBF, held_output.size());
  }
}

bool write_output(std::string_view piece) {
  errno = 0;
  const bool written = std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size();
  if (!written || std::fflush(stdout) != 0) note_failure();
  return first_error == 0;
}

Status finish_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) note_failure();
  if (std::ferror(stdout) != 0) note_failure();
  if (first_error == 0) return {};
  if (first_error == EPIPE) {
    return make_error(ErrorCode::kUnavailable, "the reader of standard output has gone");
  }
  return make_error(ErrorCode::kIo, "cannot write to standard output: {}",
                    std::strerror(first_error));
}

}  // namespace headrace
