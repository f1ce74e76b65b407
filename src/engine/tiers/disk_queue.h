// DiskQueue: the store's files on a thread of their own. Jobs go in, results come out; nobody waits
// for a disk.
//
// Reads go before everything else: a request waits for them. All else is done in order. The memory
// that a job names belongs to the thread until its result is taken. When the queue ends, what is to
// be written is written, reads are dropped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/tiers/segment_store.h"

namespace headrace {

struct DiskJob {
  enum class Kind : uint8_t { kWrite, kRead, kKill, kClear };
  Kind kind = Kind::kWrite;
  StoredBlock block;           // kWrite, kRead
  BlockPlace place;            // kRead, kKill
  int32_t slot = -1;           // of the caller
  std::span<std::byte> bytes;  // kWrite, kRead
};

// Of a write or a read.
struct DiskResult {
  enum class Outcome : uint8_t { kDone, kGone, kUnsound, kFailed };
  DiskJob job;  // a write's place is there when it is done
  Outcome outcome = Outcome::kDone;
  std::string failure;            // unless it is done
  std::vector<uint32_t> dropped;  // files that went before it was done
  uint64_t store_bytes = 0;
  TimeUs us = 0;  // that it took
};

class DiskQueue {
 public:
  explicit DiskQueue(SegmentStore store);
  ~DiskQueue();
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  void push(std::span<const DiskJob> jobs);
  std::vector<DiskResult> take_results();
  // Until there are results, or this long.
  void wait(std::chrono::microseconds patience);

 private:
  void run();
  bool next(DiskJob* job);
  DiskResult work(const DiskJob& job);

  SegmentStore store_;  // of the thread
  std::mutex mutex_;
  std::condition_variable has_jobs_, has_results_;
  std::deque<DiskJob> reads_, others_;  // guarded, as all below
  std::vector<DiskResult> results_;
  bool ending_ = false;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace headrace
