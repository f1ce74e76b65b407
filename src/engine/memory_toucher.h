// MemoryToucher: has the system give memory for KV blocks before sequences write them.
//
// Memory that was never written comes page by page at the first write, cleared: milliseconds for a
// large page, which all threads of a step would wait for. Blocks are taken in the order of their
// ids (block_pool.h), so what comes next is known. It is touched in pieces, a few ahead, so that
// what a light load never uses is not asked for:
// - by a thread of its own, while the engine rests or where that thread has a core to itself.
// Beside
//   a step it would take half of a core from one of the threads that all the others wait for.
// - else as a part of steps, by all of their threads: each step claims what it needs, and a few
//   pieces more when few are left ahead. Steps that do so are told from others by their time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace headrace {

struct MemoryTouching {
  int64_t num_pieces = 0;      // that there are
  int64_t num_ahead = 1;       // touched beyond those in use
  int64_t pieces_at_once = 1;  // that a step touches to have more ahead: one of each of its threads
  bool has_core = false;       // the toucher's thread has a core to itself
};

class MemoryToucher {
 public:
  // touch: of one piece; on several threads at once, beside whatever runs. Throws std::system_error
  // when the system refuses a thread.
  MemoryToucher(const MemoryTouching& options, std::function<void(int64_t piece)> touch);
  ~MemoryToucher();  // after the piece at hand
  MemoryToucher(const MemoryToucher&) = delete;
  MemoryToucher& operator=(const MemoryToucher&) = delete;

  // One thread at a time calls these.
  // So many pieces are in use, and the engine rests: the thread goes ahead of them.
  void rest(int64_t num_used);
  // So many will be in a step, which comes next. Returns how many of them it has to touch, by
  // touch_claimed(i) of each, from any threads.
  int64_t claim(int64_t num_used);
  void touch_claimed(int64_t i) const { touch_(first_claimed_ + i); }
  // A step is computed. Wakes the thread, if it may run then, when half of what is ahead is used
  // up.
  void go_on();

 private:
  void run();
  void go_to(int64_t wanted);
  int64_t take(int64_t end);

  const MemoryTouching options_;
  const std::function<void(int64_t)> touch_;
  int64_t first_claimed_ = 0;
  int64_t num_used_ = 0;
  std::atomic<int64_t> next_ = 0;    // the end of what is touched, or is being touched
  std::atomic<int64_t> wanted_ = 0;  // how far the thread goes; < 0: it ends
  std::atomic<uint32_t> wakes_ = 0;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace headrace
