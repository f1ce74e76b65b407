#include "cli/hang_up.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace headrace {
namespace {

bool has_terminal() {
  const int descriptor = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return false;
  ::close(descriptor);
  return true;
}

}  // namespace

HangUp::HangUp() : had_terminal_(has_terminal()) {
  struct sigaction action{};
  ignored_ = sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

HangUp::Meaning HangUp::meaning(bool can_reload) const {
  const bool terminal_closed = had_terminal_ && !has_terminal();
  if (can_reload && !terminal_closed) return Meaning::kReload;
  return ignored_ ? Meaning::kNothing : Meaning::kStop;
}

}  // namespace headrace
