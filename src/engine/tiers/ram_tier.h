// RamTier: a fixed number of slots in memory, each with the bytes of one block.
//
// The slot that was used least recently is given away first. A slot may be lent: then it is in no
// table, and whoever has it may write to it from another thread until it is given back. Memory of a
// slot is taken when it is first used, and kept. Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/tiers/stored_block.h"

namespace headrace {

class RamTier {
 public:
  RamTier(int32_t num_slots, size_t block_bytes);

  // The slot with this block, -1: none.
  int32_t find(const TierBlock& block) const;
  // A slot for this block, which is findable from now on; -1: all are lent, or memory is short.
  int32_t take(const StoredBlock& block);
  int32_t lend();
  // A lent slot: with what it holds now, or with nothing.
  void give_back(int32_t slot, const StoredBlock& block);
  void give_back(int32_t slot) { push(slot, /*hot=*/false); }
  // To be given away last, or first.
  void warm(int32_t slot) { move(slot, /*hot=*/true); }
  void cool(int32_t slot) { move(slot, /*hot=*/false); }
  void forget(const BlockKey& key);
  void clear();

  std::span<std::byte> bytes(int32_t slot) {
    return {slots_[static_cast<size_t>(slot)].bytes.get(), block_bytes_};
  }
  int64_t num_slots() const { return std::ssize(slots_); }
  int64_t num_held() const { return std::ssize(index_); }
  // Of slots that were used at some time.
  uint64_t num_bytes() const { return num_allocated_ * block_bytes_; }

 private:
  struct Slot {
    std::unique_ptr<std::byte[]> bytes;
    StoredBlock block;
    bool holds = false;                // it is in the index
    int32_t colder = -1, hotter = -1;  // list of those that are not lent
  };

  Slot& at(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  void push(int32_t slot, bool hot);
  void unlink(int32_t slot);
  void move(int32_t slot, bool hot) {
    unlink(slot);
    push(slot, hot);
  }
  void empty(int32_t slot);

  const size_t block_bytes_;
  std::vector<Slot> slots_;
  std::unordered_map<BlockKey, int32_t, BlockKeyHash> index_;
  int32_t coldest_ = -1, hottest_ = -1;
  uint64_t num_allocated_ = 0;
};

}  // namespace headrace
