// KvTier: where blocks go that the pool has no room for, and whence they come back.
//
// A block is named as in engine/prefix_index.h: by the prefix that it ends, and by its column. What
// the tier is given and what it gives back moves by copies (KvCache::take_copies()) between blocks
// and slots of the tier. What a slot holds is right by the time the copies before it are done:
// bytes from outside the process are checked before find() tells of them.
//
// The scheduler asks; the same answers give the same plans. Answers change by the calls of this
// interface and in one place more, which the owner calls between steps (KvTiers::poll), and not
// while a step is planned. Nothing here waits. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "engine/keyed_digest.h"

namespace headrace {

struct TierBlock {
  Digest name;
  int32_t column = 0;
  const int32_t* tokens = nullptr;  // kBlockTokens of them, compared on each hit
};

enum class KeepReason : uint8_t {
  kPublished,  // can be found from now on
  kEvicted,    // its place in the pool is about to be taken
};

// What became of blocks and of asking for them, since the start.
struct TierStats {
  int64_t ram_blocks = 0, disk_blocks = 0;  // held now
  uint64_t ram_bytes = 0, disk_bytes = 0;
  uint64_t blocks_kept = 0;      // by eviction, in memory
  uint64_t blocks_stored = 0;    // written to disk
  uint64_t blocks_read = 0;      // from disk, and found sound
  uint64_t blocks_restored = 0;  // put back into the pool
  uint64_t blocks_unsound = 0;   // read, but not what was written
  uint64_t blocks_dropped = 0;   // not stored: the queue was full, or the disk failed
  uint64_t bypasses = 0;         // times that the disk failed and was left alone for a while
};

class KvTier {
 public:
  virtual ~KvTier() = default;

  // A slot for the bytes of a block, -1: they are not wanted. The copy must follow.
  virtual int32_t keep(const TierBlock& block, KeepReason reason) = 0;
  // The slot that holds a block, -1: none in memory. Good until the next keep() or fetch() but for
  // a copy that was listed before it.
  virtual int32_t find(const TierBlock& block) = 0;
  // Whether it holds the block, in memory or deeper.
  virtual bool holds(const TierBlock& block) const = 0;
  virtual bool in_memory(const TierBlock& block) const = 0;
  // Begins to bring what is held deeper into memory, first things first; as many as have room.
  // A ticket for is_done(); a failure is done too.
  virtual uint64_t fetch(std::span<const TierBlock> blocks) = 0;
  virtual bool is_done(uint64_t ticket) const = 0;
  // What bringing one block has taken lately; 0: none was brought.
  virtual TimeUs read_us() const { return 0; }
  // What the block's column holds of this name is not given back any more.
  virtual void forget(const Digest& name, int32_t column) = 0;
  // The same of everything.
  virtual void clear() = 0;

  // The bytes of a slot from keep() or find(), for the copies of a step.
  virtual std::span<std::byte> bytes(int32_t slot) = 0;
  // All copies that were listed are done: slots may be used anew.
  virtual void copies_done() = 0;
  virtual TierStats stats() const { return {}; }
};

}  // namespace headrace
