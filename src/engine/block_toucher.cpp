#include "engine/block_toucher.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace headrace {

BlockToucher::BlockToucher(int64_t num_blocks, int64_t num_ahead,
                           std::function<void(int32_t)> touch)
    : num_blocks_(num_blocks),
      num_ahead_(std::max<int64_t>(num_ahead, 1)),
      touch_(std::move(touch)),
      thread_([this] { run(); }) {}

BlockToucher::~BlockToucher() {
  wanted_ = -1;
  wanted_.notify_one();
  thread_.join();
}

void BlockToucher::used(int64_t num_blocks) {
  const int64_t end = std::min(num_blocks + num_ahead_, num_blocks_);
  const bool has_half = asked_ - num_blocks > num_ahead_ / 2;
  if (end <= asked_ || has_half) return;
  asked_ = end;
  wanted_ = end;
  wanted_.notify_one();
}

void BlockToucher::run() {
  pthread_setname_np(pthread_self(), "hr-memory");  // for whoever lists threads
  int64_t touched = 0;
  while (true) {
    const int64_t wanted = wanted_;
    if (wanted < 0) return;
    if (touched < wanted) {
      touch_(static_cast<int32_t>(touched++));
    } else {
      wanted_.wait(wanted);
    }
  }
}

}  // namespace headrace
