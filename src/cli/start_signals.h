// start_signals: what a signal to stop does while a server starts.
#pragma once

#include <csignal>
#include <thread>

#include "base/descriptor.h"
#include "cli/hang_up.h"

namespace headrace {

// SIGINT, SIGTERM and SIGHUP.
sigset_t stop_signals();
// In every thread from the start of the command, so that only who waits for them takes them.
void block_stop_signals();

// Models may take minutes to load, and nobody is served yet who could be left without an answer: a
// signal to stop ends the process at once, as it ends other commands. One that says to read files
// again waits until the server can.
class StartSignals {
 public:
  // Blocks them. can_reload: as for HangUp::meaning().
  StartSignals(const HangUp& hang_up, bool can_reload);
  ~StartSignals() { hand_over(); }
  StartSignals(const StartSignals&) = delete;
  StartSignals& operator=(const StartSignals&) = delete;
  // From now on signals stay for watch_signals(), those too that come meanwhile.
  void hand_over();

 private:
  void watch();
  void take(int signal);

  const HangUp& hang_up_;
  const bool can_reload_;
  bool reload_later_ = false;
  const Descriptor signals_;
  const Descriptor over_;  // eventfd
  std::thread watcher_;
};

}  // namespace headrace
