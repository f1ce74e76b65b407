// BlockPool: whether a KV block is free, used or cached. Knows ids and holders, not contents.
//
// Every block of every cache group comes from here. A block is used while it has holders; when the
// last one leaves it becomes cached if its content can be found again, else free. Cached blocks lie
// in the order in which they were left: the one left first is taken first when none is free, O(1).
// Nothing allocates after construction but the list of tainted blocks. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headrace {

class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  // A free block, held once; -1 when none is free.
  int32_t take_free();
  // The cached block that was left first, -1 when there is none; forget() makes it free.
  int32_t oldest_cached() const { return oldest_; }
  void forget(int32_t block_id);
  void hold(int32_t block_id);
  // findable: its content is known to the index, so that it becomes cached rather than free.
  void drop(int32_t block_id, bool findable);
  int32_t num_holders(int32_t block_id) const { return at(block_id).num_holders; }

  // A held block whose content nobody may see again: listed once when its last holder leaves.
  void taint(int32_t block_id) { at(block_id).tainted = true; }
  std::vector<int32_t> take_tainted() { return std::exchange(tainted_, {}); }

  int64_t num_total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_used() const { return num_total() - num_free() - num_cached_; }
  int64_t num_available() const { return num_free() + num_cached_; }
  int64_t num_touched() const { return num_touched_; }  // held at some time
  bool is_cached(int32_t block_id) const { return at(block_id).cached; }

  // Proves free + used + cached = total and holders[i] = those of block i. kInternal with the first
  // contradiction. O(blocks); for tests.
  Status check(std::span<const int32_t> holders) const;

 private:
  struct Block {
    int32_t num_holders = 0;
    bool tainted = false;  // while it is held
    bool cached = false;
    int32_t older = -1, newer = -1;  // list of cached blocks
  };

  Block& at(int32_t block_id) { return blocks_[static_cast<size_t>(block_id)]; }
  const Block& at(int32_t block_id) const { return blocks_[static_cast<size_t>(block_id)]; }
  void push_cached(int32_t block_id);
  void remove_cached(int32_t block_id);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;          // taken from the back
  std::vector<int32_t> tainted_;       // for take_tainted
  int32_t oldest_ = -1, newest_ = -1;  // cached blocks by the time they were left
  int64_t num_cached_ = 0;
  int64_t num_touched_ = 0;
};

}  // namespace headrace
