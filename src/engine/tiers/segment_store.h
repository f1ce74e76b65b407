// SegmentStore: blocks in files of a folder, appended, checked when they are read, the oldest files
// dropped first.
//
// Nothing is written twice but the mark of a dead record. A process that is killed leaves a torn
// end at most, which the next open() cuts off; what a disk or a power cut spoils fails its check
// when it is read. Nothing is synced: what the system loses are misses. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/result.h"
#include "engine/tiers/segment_format.h"

namespace headrace {

// The calls that a disk fails; tests make them fail. As the system's: bytes moved, or -1 and errno.
class DiskCalls {
 public:
  virtual ~DiskCalls() = default;
  virtual ssize_t read(int file, std::span<std::byte> to, uint64_t offset);
  virtual ssize_t write(int file, std::span<const std::byte> from, uint64_t offset);
  virtual int truncate(int file, uint64_t size);
};
DiskCalls& system_disk();

struct BlockPlace {
  uint32_t segment = 0;
  uint64_t offset = 0;
  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

struct SegmentStoreOptions {
  int folder = -1;   // outlives the store
  std::string path;  // of the folder, for messages
  SegmentRules rules;
  uint64_t max_bytes = 0;  // of all files; at least least_bytes()
};

class SegmentStore {
 public:
  struct Found {
    StoredBlock block;
    BlockPlace place;
  };
  // What sound files there have, oldest first, goes to `found`. Files that are none of this store
  // are removed, torn ends cut off. Calls outlive the store.
  static SegmentStore open(const SegmentStoreOptions& options, DiskCalls& calls,
                           std::vector<Found>* found);
  static uint64_t least_bytes(uint64_t block_bytes);

  // kIo with the system's reason: the block is not stored, and its file gets no more.
  Result<BlockPlace> append(const StoredBlock& block, std::span<const std::byte> bytes);
  // kIo; kNotFound: its file was dropped, or it is dead; kCorrupt: it is not what was written.
  Status read(const BlockPlace& place, const StoredBlock& block, std::span<std::byte> bytes);
  // No later open() finds it.
  void kill(const BlockPlace& place);
  void clear();
  // Files that went since the last call.
  std::vector<uint32_t> take_dropped() { return std::exchange(dropped_, {}); }
  uint64_t num_bytes() const { return num_bytes_; }

 private:
  struct Segment {
    uint32_t number = 0;
    Descriptor file;
    uint64_t size = 0;
  };

  SegmentStore(const SegmentStoreOptions& options, DiskCalls& calls)
      : options_(options), calls_(&calls) {}
  void adopt(const std::string& name, std::vector<Found>* found);
  uint64_t scan(uint32_t number, int file, uint64_t file_bytes, std::vector<Found>* found);
  Status begin_segment();
  void drop_oldest();
  Segment* find(uint32_t number);
  Status write_all(int file, std::span<const std::byte> bytes, uint64_t offset);
  Status read_all(int file, std::span<std::byte> bytes, uint64_t offset);
  std::string path_of(uint32_t number) const;

  SegmentStoreOptions options_;
  DiskCalls* calls_;
  std::deque<Segment> segments_;  // oldest first
  bool is_open_ = false;          // the newest takes records
  uint32_t last_number_ = 0;
  uint64_t num_bytes_ = 0;
  std::vector<uint32_t> dropped_;
};

}  // namespace headrace
