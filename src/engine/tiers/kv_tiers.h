// KvTiers: blocks in memory and on disk behind the pool.
//
// Memory takes what the pool evicts, and what comes from the disk. The disk is given every block
// that is published, through buffers: where none is free the block is not stored. What it holds is
// known here by name; reads go through the queue into slots of memory, and are findable there when
// poll() has seen them sound. A disk that fails is left alone for half a minute: nothing is
// written, read or looked for. Engine thread only; the disk has its own (disk_queue.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "engine/tiers/disk_queue.h"
#include "engine/tiers/ram_tier.h"
#include "engine/tiers/store_folder.h"

namespace headrace {

struct KvTierOptions {
  size_t block_bytes = 0;
  size_t ram_bytes = 0;     // 0: memory is used on the way from the disk only
  std::string disk_folder;  // empty: none
  uint64_t disk_bytes = 0;
  StoreIdentity identity;  // of what is on disk
  DiskCalls* calls = &system_disk();
};

class KvTiers final : public KvTier {
 public:
  static constexpr TimeUs kBypassUs = 30'000'000;
  static constexpr size_t kStagingBytes = size_t{256} << 20;  // least memory above a disk

  // kInvalidArgument when a size has no room for a block; StoreFolder::open()'s errors. A folder
  // that another process writes to is not used, which is logged.
  static Result<std::unique_ptr<KvTiers>> create(const KvTierOptions& options);

  // What names must be made with so that those of the store fit; nothing without a disk.
  std::optional<HashKey> key() const { return key_; }
  // The memory that it may take.
  size_t most_bytes() const;
  // Between steps: takes what the disk has done.
  void poll(TimeUs now);
  // Until the disk has done something, or this long.
  void wait(std::chrono::microseconds patience);

  int32_t keep(const TierBlock& block, KeepReason reason) override;
  int32_t find(const TierBlock& block) override;
  bool holds(const TierBlock& block) const override;
  bool in_memory(const TierBlock& block) const override { return ram_.find(block) >= 0; }
  uint64_t fetch(std::span<const TierBlock> blocks) override;
  bool is_done(uint64_t ticket) const override { return ticket <= num_reads_done_; }
  TimeUs read_us() const override { return read_us_; }
  void forget(const Digest& name, int32_t column) override;
  void clear() override;
  std::span<std::byte> bytes(int32_t slot) override;
  void copies_done() override;
  TierStats stats() const override;

 private:
  struct OnDisk {
    StoredBlock block;
    BlockPlace place;
  };
  using Outcome = DiskResult::Outcome;

  KvTiers(const KvTierOptions& options, int32_t num_slots);
  Status open_disk(const KvTierOptions& options);
  bool uses_disk() const { return disk_ != nullptr && now_ >= bypass_ends_; }
  const OnDisk* find_on_disk(const TierBlock& block) const;
  int32_t keep_for_disk(const StoredBlock& block);
  int32_t take_buffer();
  void add_on_disk(const StoredBlock& block, const BlockPlace& place);
  void drop_segment(uint32_t number);
  void take_written(const DiskResult& result);
  void take_read(const DiskResult& result);
  void push_others();
  void bypass(const std::string& failure);

  const size_t block_bytes_;
  RamTier ram_;
  std::optional<HashKey> key_;
  // Of blocks on their way to the disk; slots behind those of ram_.
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::vector<int32_t> free_buffers_;
  std::unordered_map<BlockKey, int32_t, BlockKeyHash> writing_;  // to the slot of its buffer
  std::unordered_set<BlockKey, BlockKeyHash> reading_;
  std::unordered_map<BlockKey, OnDisk, BlockKeyHash> on_disk_;
  std::unordered_map<uint32_t, std::vector<BlockKey>> by_segment_;
  std::vector<DiskJob> copied_;  // jobs on slots: for the disk when the copies are done
  std::vector<DiskJob> others_;  // for the disk at once
  uint64_t num_reads_ = 0, num_reads_done_ = 0;
  TimeUs now_ = 0, bypass_ends_ = 0;
  TimeUs read_us_ = 0;
  TierStats stats_;
  std::optional<StoreFolder> folder_;
  std::unique_ptr<DiskQueue> disk_;  // last: its thread uses what stands above
};

}  // namespace headrace
