#include "engine/tiers/kv_tiers.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/strings.h"

namespace headrace {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 20;  // of blocks on their way to the disk
constexpr size_t kLeastBuffers = 4, kMostBuffers = 1024;

}  // namespace

Result<std::unique_ptr<KvTiers>> KvTiers::create(const KvTierOptions& options) {
  const bool has_disk = !options.disk_folder.empty();
  if (options.ram_bytes > 0 && options.ram_bytes < options.block_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--kv-ram is {} bytes, but a block of this model takes {}", options.ram_bytes,
                      options.block_bytes);
  }
  const size_t ram_bytes =
      std::max(options.ram_bytes, has_disk ? std::max(kStagingBytes, options.block_bytes) : 0);
  const auto num_slots =
      static_cast<int32_t>(std::min<size_t>(ram_bytes / options.block_bytes, size_t{1} << 30));
  std::unique_ptr<KvTiers> tiers(new KvTiers(options, num_slots));
  if (has_disk) TRY(tiers->open_disk(options));
  return tiers;
}

KvTiers::KvTiers(const KvTierOptions& options, int32_t num_slots)
    : block_bytes_(options.block_bytes), ram_(num_slots, options.block_bytes) {}

size_t KvTiers::most_bytes() const {
  const size_t memory = static_cast<size_t>(ram_.num_slots()) * block_bytes_;
  return memory + (disk_ == nullptr ? 0 : std::max(kBufferBytes, kLeastBuffers * block_bytes_));
}

Status KvTiers::open_disk(const KvTierOptions& options) {
  const uint64_t least = 2 * SegmentStore::least_bytes(block_bytes_);  // others may keep half
  if (options.disk_bytes < least) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--kv-disk-size is {} bytes, but a store for this model needs {} or more",
                      options.disk_bytes, least);
  }
  folder_.emplace(
      TRY(StoreFolder::open(options.disk_folder, options.identity, options.disk_bytes)));
  if (!folder_->is_writer()) {
    LOG(kWarning, "'{}' is in use by another process: keys and values are not kept on disk",
        folder_->path());
    return {};
  }
  key_ = folder_->key();
  std::vector<SegmentStore::Found> found;
  SegmentStore store = SegmentStore::open({folder_->descriptor(),
                                           folder_->path(),
                                           {folder_->key(), folder_->identity(), block_bytes_},
                                           folder_->max_bytes()},
                                          *options.calls, &found);
  for (const SegmentStore::Found& record : found) add_on_disk(record.block, record.place);
  for (const uint32_t number : store.take_dropped()) drop_segment(number);
  stats_.disk_bytes = store.num_bytes();
  LOG(kInfo, "'{}' keeps {} blocks of keys and values, {}", folder_->path(), on_disk_.size(),
      format_bytes(store.num_bytes()));
  disk_ = std::make_unique<DiskQueue>(std::move(store));
  return {};
}

int32_t KvTiers::keep(const TierBlock& block, KeepReason reason) {
  if (reason == KeepReason::kPublished) {
    return uses_disk() && find_on_disk(block) == nullptr ? keep_for_disk(StoredBlock(block)) : -1;
  }
  const int32_t known = ram_.find(block);
  if (known >= 0) {
    ram_.warm(known);
    return -1;
  }
  const int32_t slot = ram_.take(StoredBlock(block));
  stats_.blocks_kept += slot >= 0 ? 1 : 0;
  return slot;
}

int32_t KvTiers::keep_for_disk(const StoredBlock& block) {
  if (writing_.contains(block.key)) return -1;
  const int32_t buffer = take_buffer();
  if (buffer < 0) {
    ++stats_.blocks_dropped;
    return -1;
  }
  const auto slot = static_cast<int32_t>(ram_.num_slots()) + buffer;
  writing_.emplace(block.key, slot);
  DiskJob job;
  job.kind = DiskJob::Kind::kWrite;
  job.block = block;
  job.slot = slot;
  job.bytes = bytes(slot);
  copied_.push_back(job);
  return slot;
}

// -1: as many are on their way as may be, or memory is short.
int32_t KvTiers::take_buffer() {
  if (free_buffers_.empty()) {
    const size_t most = std::clamp(kBufferBytes / block_bytes_, kLeastBuffers, kMostBuffers);
    if (buffers_.size() >= most) return -1;
    std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[block_bytes_]);
    if (buffer == nullptr) return -1;
    free_buffers_.push_back(static_cast<int32_t>(buffers_.size()));
    buffers_.push_back(std::move(buffer));
  }
  const int32_t buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return buffer;
}

int32_t KvTiers::find(const TierBlock& block) {
  const int32_t slot = ram_.find(block);
  if (slot < 0) return -1;
  ram_.cool(slot);  // it is in the pool now
  ++stats_.blocks_restored;
  return slot;
}

const KvTiers::OnDisk* KvTiers::find_on_disk(const TierBlock& block) const {
  const auto found = on_disk_.find({block.name, block.column});
  return found != on_disk_.end() && found->second.block.is(block) ? &found->second : nullptr;
}

bool KvTiers::holds(const TierBlock& block) const {
  return in_memory(block) || (uses_disk() && find_on_disk(block) != nullptr);
}

uint64_t KvTiers::fetch(std::span<const TierBlock> blocks) {
  bool is_coming = false;
  for (const TierBlock& block : blocks) {
    const OnDisk* found = uses_disk() ? find_on_disk(block) : nullptr;
    if (found == nullptr) continue;
    is_coming = true;
    if (reading_.contains(found->block.key)) continue;
    const int32_t slot = ram_.lend();
    if (slot < 0) break;
    reading_.insert(found->block.key);
    ++num_reads_;
    copied_.push_back({DiskJob::Kind::kRead, found->block, found->place, slot, bytes(slot)});
  }
  return is_coming ? num_reads_ : 0;
}

void KvTiers::forget(const Digest& name, int32_t column) {
  const BlockKey key{name, column};
  ram_.forget(key);
  writing_.erase(key);  // what is on its way is killed when it has arrived
  const auto found = on_disk_.find(key);
  if (found == on_disk_.end()) return;
  others_.push_back({DiskJob::Kind::kKill, {}, found->second.place, -1, {}});
  on_disk_.erase(found);
}

void KvTiers::clear() {
  ram_.clear();
  writing_.clear();
  on_disk_.clear();
  by_segment_.clear();
  if (disk_ != nullptr) others_.push_back({DiskJob::Kind::kClear, {}, {}, -1, {}});
}

std::span<std::byte> KvTiers::bytes(int32_t slot) {
  if (slot < ram_.num_slots()) return ram_.bytes(slot);
  const auto buffer = static_cast<size_t>(slot - ram_.num_slots());
  return {buffers_[buffer].get(), block_bytes_};
}

void KvTiers::copies_done() {
  push_others();
  if (disk_ != nullptr) disk_->push(copied_);
  copied_.clear();
}

void KvTiers::push_others() {
  if (disk_ != nullptr) disk_->push(others_);
  others_.clear();
}

void KvTiers::wait(std::chrono::microseconds patience) {
  if (disk_ != nullptr) disk_->wait(patience);
}

void KvTiers::poll(TimeUs now) {
  now_ = now;
  if (disk_ == nullptr) return;
  for (const DiskResult& result : disk_->take_results()) {
    for (const uint32_t number : result.dropped) drop_segment(number);
    stats_.disk_bytes = result.store_bytes;
    if (result.job.kind == DiskJob::Kind::kWrite) {
      take_written(result);
    } else {
      take_read(result);
    }
  }
  push_others();
}

void KvTiers::take_written(const DiskResult& result) {
  const DiskJob& job = result.job;
  free_buffers_.push_back(job.slot - static_cast<int32_t>(ram_.num_slots()));
  const auto found = writing_.find(job.block.key);
  const bool is_wanted = found != writing_.end() && found->second == job.slot;
  if (is_wanted) writing_.erase(found);
  if (result.outcome != Outcome::kDone) {
    ++stats_.blocks_dropped;
    return bypass(result.failure);
  }
  if (!is_wanted) {
    others_.push_back({DiskJob::Kind::kKill, {}, job.place, -1, {}});
    return;
  }
  ++stats_.blocks_stored;
  add_on_disk(job.block, job.place);
}

void KvTiers::take_read(const DiskResult& result) {
  const DiskJob& job = result.job;
  reading_.erase(job.block.key);
  ++num_reads_done_;
  const auto found = on_disk_.find(job.block.key);
  const bool is_known = found != on_disk_.end() && found->second.place == job.place;
  if (result.outcome == Outcome::kDone && is_known) {
    ++stats_.blocks_read;
    read_us_ = read_us_ == 0 ? result.us : read_us_ + (result.us - read_us_) / 8;
    return ram_.give_back(job.slot, job.block);
  }
  ram_.give_back(job.slot);
  if (result.outcome == Outcome::kFailed) return bypass(result.failure);
  if (result.outcome == Outcome::kUnsound) {
    ++stats_.blocks_unsound;
    LOG(kWarning, "a block of keys and values is computed again: {}", result.failure);
  }
  if (result.outcome != Outcome::kDone && is_known) {
    others_.push_back({DiskJob::Kind::kKill, {}, job.place, -1, {}});
    on_disk_.erase(found);
  }
}

void KvTiers::bypass(const std::string& failure) {
  if (now_ < bypass_ends_) return;  // this one was on its way
  bypass_ends_ = now_ + kBypassUs;
  ++stats_.bypasses;
  LOG(kWarning, "keys and values are not kept on disk for {} s: {}", kBypassUs / 1'000'000,
      failure);
}

// The newest place counts.
void KvTiers::add_on_disk(const StoredBlock& block, const BlockPlace& place) {
  on_disk_.insert_or_assign(block.key, OnDisk{block, place});
  by_segment_[place.segment].push_back(block.key);
}

void KvTiers::drop_segment(uint32_t number) {
  const auto keys = by_segment_.find(number);
  if (keys == by_segment_.end()) return;
  for (const BlockKey& key : keys->second) {
    const auto found = on_disk_.find(key);
    if (found != on_disk_.end() && found->second.place.segment == number) on_disk_.erase(found);
  }
  by_segment_.erase(keys);
}

TierStats KvTiers::stats() const {
  TierStats stats = stats_;
  stats.ram_blocks = ram_.num_held();
  stats.ram_bytes = ram_.num_bytes();
  stats.disk_blocks = std::ssize(on_disk_);
  return stats;
}

}  // namespace headrace
