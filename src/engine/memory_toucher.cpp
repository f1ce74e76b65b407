#include "engine/memory_toucher.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace headrace {

MemoryToucher::MemoryToucher(const MemoryTouching& options, std::function<void(int64_t)> touch)
    : options_(options), touch_(std::move(touch)), thread_([this] { run(); }) {}

MemoryToucher::~MemoryToucher() {
  wanted_ = -1;
  ++wakes_;
  wakes_.notify_one();
  thread_.join();
}

void MemoryToucher::rest(int64_t num_used) {
  num_used_ = num_used;
  go_to(num_used + options_.num_ahead);
}

int64_t MemoryToucher::claim(int64_t num_used) {
  num_used_ = num_used;
  if (!options_.has_core) wanted_ = 0;  // the thread stops after the piece at hand
  int64_t first = next_, end = 0;
  do {
    const bool has_half = first - num_used > options_.num_ahead / 2;
    const int64_t more = options_.has_core || has_half ? 0 : options_.pieces_at_once;
    end = std::min(std::max(num_used, first + more), options_.num_pieces);
  } while (end > first && !next_.compare_exchange_weak(first, end));
  first_claimed_ = first;
  return std::max<int64_t>(0, end - first);
}

void MemoryToucher::go_on() {
  if (!options_.has_core || next_ - num_used_ > options_.num_ahead / 2) return;
  go_to(num_used_ + options_.num_ahead);
}

void MemoryToucher::go_to(int64_t wanted) {
  wanted = std::min(wanted, options_.num_pieces);
  if (wanted <= next_ || wanted_.exchange(wanted) == wanted) return;
  ++wakes_;
  wakes_.notify_one();
}

// The next piece before `end`; -1: all are touched.
int64_t MemoryToucher::take(int64_t end) {
  int64_t next = next_;
  while (next < end) {
    if (next_.compare_exchange_weak(next, next + 1)) return next;
  }
  return -1;
}

void MemoryToucher::run() {
  pthread_setname_np(pthread_self(), "hr-memory");  // for whoever lists threads
  while (true) {
    const uint32_t seen = wakes_;
    const int64_t wanted = wanted_;
    if (wanted < 0) return;
    const int64_t piece = take(wanted);
    if (piece >= 0) {
      touch_(piece);
    } else {
      wakes_.wait(seen);
    }
  }
}

}  // namespace headrace
