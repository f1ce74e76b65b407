// A tier for simulations: a few slots of memory over a deep store, whose answers come late, or
// never.
//
// What is brought from the deep store is there some polls later; now and then it is lost (its
// checksum was wrong), is not taken (a full queue), or all of it is away for a while (a disk that
// fails). Slots are given to others as early as the contract of KvTier allows.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "engine/kv_tier.h"

namespace headrace {

struct SimTierOptions {
  int num_slots = 4;
  int faults_per_64 = 4;
  int max_delay = 6;  // polls until a fetch is done
  TimeUs read_us = 100;
  bool lies = false;  // gives back the bytes of others: what a check must see
};

class SimTier final : public KvTier {
 public:
  SimTier(const SimTierOptions& options, uint64_t seed)
      : options_(options), random_(seed), slots_(static_cast<size_t>(options.num_slots)) {}

  int32_t keep(const TierBlock& block, KeepReason reason) override {
    if (fails()) return -1;
    if (reason == KeepReason::kEvicted) return in_memory(block) ? -1 : take_slot(key_of(block));
    if (deep_.contains(key_of(block))) return -1;
    writes_.push_back({key_of(block), {}});
    return static_cast<int32_t>(slots_.size() + writes_.size()) - 1;
  }
  int32_t find(const TierBlock& block) override {
    const int32_t slot = slot_of(key_of(block));
    return options_.lies && slot >= 0 ? (slot + 1) % options_.num_slots : slot;
  }
  bool holds(const TierBlock& block) const override {
    return in_memory(block) || (!is_away_ && deep_.contains(key_of(block)));
  }
  bool in_memory(const TierBlock& block) const override { return slot_of(key_of(block)) >= 0; }
  uint64_t fetch(std::span<const TierBlock> blocks) override {
    Fetch& fetch = fetches_.emplace_back();
    for (const TierBlock& block : blocks) fetch.keys.push_back(key_of(block));
    fetch.polls_left = static_cast<int>(random_() % static_cast<uint64_t>(options_.max_delay + 1));
    return ++num_fetches_;
  }
  bool is_done(uint64_t ticket) const override { return ticket <= num_done_; }
  TimeUs read_us() const override { return options_.read_us; }
  void forget(const Digest& name, int32_t column) override {
    const Key key{name.first, name.second, column};
    deep_.erase(key);
    std::erase_if(writes_, [&](const Write& write) { return write.key == key; });
    if (slot_of(key) >= 0) slots_[static_cast<size_t>(slot_of(key))].used = false;
  }
  void clear() override {
    deep_.clear();
    for (Slot& slot : slots_) slot.used = false;
  }
  std::span<std::byte> bytes(int32_t slot) override {
    const auto idx = static_cast<size_t>(slot);
    Bytes& bytes = idx < slots_.size() ? slots_[idx].bytes : writes_.at(idx - slots_.size()).bytes;
    return std::as_writable_bytes(std::span(bytes));
  }
  void copies_done() override {
    for (const Write& write : writes_) deep_[write.key] = write.bytes;
    writes_.clear();
  }

  // Between steps.
  void poll() {
    is_away_ = is_away_ ? random_() % 8 != 0 : random_() % 512 < uint64_t(options_.faults_per_64);
    if (fetches_.empty() || --fetches_.front().polls_left >= 0) return;
    for (const Key& key : fetches_.front().keys) {
      const auto found = deep_.find(key);
      if (found == deep_.end() || is_away_ || fails() || slot_of(key) >= 0) continue;
      slots_[static_cast<size_t>(take_slot(key))].bytes = found->second;
    }
    fetches_.pop_front();
    ++num_done_;
  }

 private:
  using Key = std::tuple<uint64_t, uint64_t, int32_t>;
  using Bytes = std::array<uint64_t, 16>;
  struct Slot {
    Key key;
    bool used = false;
    Bytes bytes = {};
  };
  struct Write {
    Key key;
    Bytes bytes = {};
  };
  struct Fetch {
    std::vector<Key> keys;
    int polls_left = 0;
  };

  static Key key_of(const TierBlock& block) {
    return {block.name.first, block.name.second, block.column};
  }
  bool fails() { return random_() % 64 < static_cast<uint64_t>(options_.faults_per_64); }
  int32_t slot_of(const Key& key) const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].used && slots_[i].key == key) return static_cast<int32_t>(i);
    }
    return -1;
  }
  int32_t take_slot(const Key& key) {
    const size_t slot = next_slot_++ % slots_.size();
    slots_[slot].key = key;
    slots_[slot].used = true;
    return static_cast<int32_t>(slot);
  }

  const SimTierOptions options_;
  std::mt19937_64 random_;
  std::vector<Slot> slots_;
  std::vector<Write> writes_;
  std::map<Key, Bytes> deep_;
  std::deque<Fetch> fetches_;
  uint64_t num_fetches_ = 0, num_done_ = 0;
  size_t next_slot_ = 0;
  bool is_away_ = false;
};

}  // namespace headrace
