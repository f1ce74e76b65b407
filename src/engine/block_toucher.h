// BlockToucher: has the system give memory for KV blocks before sequences write them.
//
// Memory that was never written comes page by page at the first write, cleared: milliseconds for a
// large page, which all threads of a step would wait for. Blocks are taken in the order of their
// ids (block_pool.h), so a thread of its own touches those that come next, a few ahead: what a
// light load never uses is not asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace headrace {

class BlockToucher {
 public:
  // touch: of one block, on the toucher's thread, beside whatever runs. num_ahead: blocks that are
  // touched beyond those in use. Throws std::system_error when the system refuses a thread.
  BlockToucher(int64_t num_blocks, int64_t num_ahead, std::function<void(int32_t block_id)> touch);
  ~BlockToucher();  // after the block at hand
  BlockToucher(const BlockToucher&) = delete;
  BlockToucher& operator=(const BlockToucher&) = delete;

  // So many blocks were in use by now. One thread at a time; wakes the other only when half of what
  // is ahead is used up.
  void used(int64_t num_blocks);

 private:
  void run();

  const int64_t num_blocks_, num_ahead_;
  const std::function<void(int32_t)> touch_;
  int64_t asked_ = 0;                // the end of what was asked for
  std::atomic<int64_t> wanted_ = 0;  // the same for the thread; < 0: it ends
  std::thread thread_;               // last: everything above is there when it starts
};

}  // namespace headrace
