#include "cli/start_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace headrace {
namespace {

// With the status of a process that the signal has ended, also where it was ignored before.
[[noreturn]] void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

void block_stop_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StartSignals::StartSignals(const HangUp& hang_up, bool can_reload)
    : hang_up_(hang_up),
      can_reload_(can_reload),
      signals_([] {
        const sigset_t signals = stop_signals();
        return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
      }()),
      over_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(signals_.ok() && over_.ok(), "no descriptor for signals: {}", std::strerror(errno));
  block_stop_signals();
  watcher_ = std::thread([this] { watch(); });
}

void StartSignals::hand_over() {
  if (!watcher_.joinable()) return;
  eventfd_write(over_.get(), 1);
  watcher_.join();
  if (reload_later_) ::kill(::getpid(), SIGHUP);
}

void StartSignals::watch() {
  pollfd waited[] = {{over_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  while (true) {
    if (::poll(waited, 2, -1) < 0) continue;
    if (waited[0].revents != 0) return;  // what came at the same time stays for others
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      take(static_cast<int>(info.ssi_signo));
    }
  }
}

void StartSignals::take(int signal) {
  if (signal != SIGHUP) end_by(signal);
  const HangUp::Meaning meaning = hang_up_.meaning(can_reload_);
  if (meaning == HangUp::Meaning::kStop) end_by(signal);
  if (meaning == HangUp::Meaning::kReload) reload_later_ = true;
}

}  // namespace headrace
