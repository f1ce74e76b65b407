// BlockPool: whether a KV block is free, used or cached. Knows ids and holders, not contents.
//
// Every block of every cache group comes from here. A block is used while it has holders; when the
// last one leaves it becomes cached if its content can be found again, else free. Which cached
// block is taken when none is free is the evictor's choice. Nothing allocates after construction
// but the list of tainted blocks. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/evictor.h"

namespace headrace {

class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks, const EvictionRule& rule = {});

  // A free block, held once; -1 when none is free.
  int32_t take_free();
  // The cached block to be given up next, -1 when there is none; forget() makes it free.
  int32_t next_evicted() const { return evictor_.next(); }
  void forget(int32_t block_id);
  void hold(int32_t block_id);
  // findable: its content is known to the index, so that it becomes cached rather than free.
  void drop(int32_t block_id, bool findable);
  int32_t num_holders(int32_t block_id) const { return at(block_id).num_holders; }

  // What held blocks are worth when they are left.
  Evictor& evictor() { return evictor_; }
  const Evictor& evictor() const { return evictor_; }

  // A held block whose content nobody may see again: listed once when its last holder leaves.
  void taint(int32_t block_id) { at(block_id).tainted = true; }
  std::vector<int32_t> take_tainted() { return std::exchange(tainted_, {}); }

  int64_t num_total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return evictor_.size(); }
  int64_t num_used() const { return num_total() - num_free() - num_cached(); }
  int64_t num_available() const { return num_free() + num_cached(); }
  int64_t num_touched() const { return num_touched_; }  // held at some time
  bool is_cached(int32_t block_id) const { return evictor_.contains(block_id); }

  // Proves free + used + cached = total and holders[i] = those of block i. kInternal with the first
  // contradiction. O(blocks); for tests.
  Status check(std::span<const int32_t> holders) const;

 private:
  struct Block {
    int32_t num_holders = 0;
    bool tainted = false;  // while it is held
  };

  Block& at(int32_t block_id) { return blocks_[static_cast<size_t>(block_id)]; }
  const Block& at(int32_t block_id) const { return blocks_[static_cast<size_t>(block_id)]; }

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;     // taken from the back
  std::vector<int32_t> tainted_;  // for take_tainted
  Evictor evictor_;               // of those that are cached
  int64_t num_touched_ = 0;
};

}  // namespace headrace
