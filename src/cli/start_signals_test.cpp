// Signals that come while a server starts, each in a process of its own.
#include "cli/start_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>

namespace headrace {
namespace start_signals_test {

constexpr timespec kLong{30, 0};

// 0: none comes within the time.
int next_signal(timespec limit) {
  const sigset_t signals = stop_signals();
  const int taken = sigtimedwait(&signals, nullptr, &limit);
  return taken < 0 ? 0 : taken;
}

// This signal comes during the start; a process that goes on ends with what waits for its server.
void send_at_start(int signal, bool can_reload) {
  const HangUp hang_up;
  StartSignals start(hang_up, can_reload);
  ::kill(::getpid(), signal);
  while (::usleep(500'000) != 0) continue;
  start.hand_over();
  std::_Exit(next_signal({0, 0}));
}

TEST(StartSignalsDeathTest, ThoseThatStopEndTheProcess) {
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const bool can_reload : {false, true}) {
      EXPECT_EXIT(send_at_start(signal, can_reload), ::testing::KilledBySignal(signal), "");
    }
  }
  EXPECT_EXIT(send_at_start(SIGHUP, false), ::testing::KilledBySignal(SIGHUP), "");
}

TEST(StartSignalsDeathTest, OneThatReadsFilesAgainWaitsForTheServer) {
  EXPECT_EXIT(send_at_start(SIGHUP, true), ::testing::ExitedWithCode(SIGHUP), "");
}

TEST(StartSignalsDeathTest, NohupOutlivesTheTerminal) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        send_at_start(SIGHUP, false);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(StartSignalsDeathTest, AfterTheStartTheyAreTheServers) {
  EXPECT_EXIT(
      {
        const HangUp hang_up;
        StartSignals start(hang_up, false);
        start.hand_over();
        ::kill(::getpid(), SIGTERM);
        std::_Exit(next_signal(kLong));
      },
      ::testing::ExitedWithCode(SIGTERM), "");
}

}  // namespace start_signals_test
}  // namespace headrace
