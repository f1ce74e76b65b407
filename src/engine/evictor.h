// Evictor: which cached block is given up when none is free.
//
// Blocks that nobody holds lie in queues by their worth, each in the order in which they were left:
//   spare   their request said that nobody will come back for them
//   new     left once
//   reused  somebody came back for them, or for most of what stands before them
//   kept    a request asked to keep them for a time (Retention)
// Spare ones go first. Then new ones, as long as they are more than a share of all that is cached:
// so requests that come once push out each other, not what conversations come back for. Otherwise
// goes what was left first, new or reused. Kept ones count among these when their time is over,
// when they are more than their share of all blocks, or when there is nothing else: a hint pins
// nothing. They stay in their queue when their time is over, and are charged to their owner until
// they go: else what stands before a kept block could go before it.
//
// A prefix is given up from its end: whoever holds a block holds those before it, so these are
// never of less worth and never left earlier, and what is given up is always the first left of its
// worth and all below. Choosing is O(1) and nothing allocates after construction. Source of the
// queues: Johnson and Shasha, "2Q" (VLDB 1994) and Yang et al., "FIFO queues are all you need for
// cache eviction" (SOSP 2023); order within a queue is that of the last use here. Engine thread
// only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace headrace {

enum class BlockWorth : uint8_t { kSpare, kNew, kReused, kKept };

struct EvictionRule {
  int new_percent = 10;         // of what is cached; 100: what was left first goes first
  int kept_percent = 50;        // of all blocks
  int owner_kept_percent = 25;  // of all blocks, for one owner
};

class Evictor {
 public:
  Evictor(int64_t num_blocks, const EvictionRule& rule);

  // Time moves forward only; it decides what is kept no longer.
  void set_time(TimeUs now) { now_ = now; }

  // Of a block that is held. What it is worth never falls while its content can be found.
  void raise(int32_t block_id, BlockWorth worth);
  // False: its owner keeps as many as it may.
  bool keep(int32_t block_id, TimeUs until, uint64_t owner);
  BlockWorth worth(int32_t block_id) const { return at(block_id).worth; }
  // Its content is gone.
  void clear(int32_t block_id);

  // Nobody holds it any more, or somebody does again.
  void push(int32_t block_id);
  void remove(int32_t block_id);
  bool contains(int32_t block_id) const { return at(block_id).listed; }
  int64_t size() const { return num_listed_; }
  // Who goes next; -1 when there is none.
  int32_t next() const;

  // Every block of each queue, first left first. O(blocks); for tests.
  std::vector<int32_t> listed() const;

 private:
  static constexpr size_t kNumQueues = 4;
  static constexpr size_t kNumOwners = 64;  // owners share these by their number

  struct Block {
    TimeUs keep_until = 0;
    uint64_t left = 0;  // when: counts up with each push
    int32_t older = -1, newer = -1;
    BlockWorth worth = BlockWorth::kSpare;
    uint8_t owner = 0;  // of one that is kept
    bool listed = false;
  };
  struct Queue {
    int32_t oldest = -1, newest = -1;
    int64_t size = 0;
  };

  Block& at(int32_t block_id) { return blocks_[static_cast<size_t>(block_id)]; }
  const Block& at(int32_t block_id) const { return blocks_[static_cast<size_t>(block_id)]; }
  Queue& queue(BlockWorth worth) { return queues_[static_cast<size_t>(worth)]; }
  const Queue& queue(BlockWorth worth) const { return queues_[static_cast<size_t>(worth)]; }
  int32_t left_first(int32_t a, int32_t b) const;
  bool is_protected(int32_t block_id) const;

  const EvictionRule rule_;
  const int64_t most_kept_;
  const int64_t most_of_owner_;
  std::vector<Block> blocks_;
  std::array<Queue, kNumQueues> queues_;
  std::array<int64_t, kNumOwners> num_kept_{};  // by owner, held or not
  int64_t num_listed_ = 0;
  uint64_t num_left_ = 0;
  TimeUs now_ = 0;
};

}  // namespace headrace
