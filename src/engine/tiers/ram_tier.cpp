#include "engine/tiers/ram_tier.h"

#include <new>
#include <utility>

#include "base/check.h"

namespace headrace {

RamTier::RamTier(int32_t num_slots, size_t block_bytes)
    : block_bytes_(block_bytes), slots_(static_cast<size_t>(num_slots)) {
  index_.reserve(slots_.size());
  for (int32_t slot = num_slots - 1; slot >= 0; --slot) push(slot, /*hot=*/false);
}

int32_t RamTier::find(const TierBlock& block) const {
  const auto found = index_.find({block.name, block.column});
  if (found == index_.end()) return -1;
  return slots_[static_cast<size_t>(found->second)].block.is(block) ? found->second : -1;
}

int32_t RamTier::lend() {
  const int32_t slot = coldest_;
  if (slot < 0) return -1;
  if (at(slot).bytes == nullptr) {
    at(slot).bytes.reset(new (std::nothrow) std::byte[block_bytes_]);
    if (at(slot).bytes == nullptr) return -1;
    ++num_allocated_;
  }
  empty(slot);
  unlink(slot);
  return slot;
}

int32_t RamTier::take(const StoredBlock& block) {
  const int32_t slot = lend();
  if (slot >= 0) give_back(slot, block);
  return slot;
}

void RamTier::give_back(int32_t slot, const StoredBlock& block) {
  forget(block.key);
  at(slot).block = block;
  at(slot).holds = true;
  index_.emplace(block.key, slot);
  push(slot, /*hot=*/true);
}

void RamTier::forget(const BlockKey& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  const int32_t slot = found->second;
  empty(slot);
  cool(slot);
}

void RamTier::clear() {
  for (Slot& slot : slots_) slot.holds = false;
  index_.clear();
}

void RamTier::empty(int32_t slot) {
  if (std::exchange(at(slot).holds, false)) index_.erase(at(slot).block.key);
}

void RamTier::push(int32_t slot, bool hot) {
  Slot& own = at(slot);
  int32_t& end = hot ? hottest_ : coldest_;
  own.colder = hot ? end : -1;
  own.hotter = hot ? -1 : end;
  if (end >= 0) (hot ? at(end).hotter : at(end).colder) = slot;
  end = slot;
  int32_t& other = hot ? coldest_ : hottest_;
  if (other < 0) other = slot;
}

void RamTier::unlink(int32_t slot) {
  Slot& own = at(slot);
  (own.colder >= 0 ? at(own.colder).hotter : coldest_) = own.hotter;
  (own.hotter >= 0 ? at(own.hotter).colder : hottest_) = own.colder;
  own.colder = own.hotter = -1;
}

}  // namespace headrace
