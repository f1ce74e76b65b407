#include "engine/tiers/disk_queue.h"

#include <utility>

namespace headrace {

DiskQueue::DiskQueue(SegmentStore store) : store_(std::move(store)), thread_([this] { run(); }) {}

DiskQueue::~DiskQueue() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    reads_.clear();
  }
  has_jobs_.notify_one();
  thread_.join();
}

void DiskQueue::push(std::span<const DiskJob> jobs) {
  if (jobs.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (const DiskJob& job : jobs) {
      (job.kind == DiskJob::Kind::kRead ? reads_ : others_).push_back(job);
    }
  }
  has_jobs_.notify_one();
}

std::vector<DiskResult> DiskQueue::take_results() {
  std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

void DiskQueue::wait(std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  has_results_.wait_for(lock, patience, [this] { return !results_.empty(); });
}

void DiskQueue::run() {
  DiskJob job;
  while (next(&job)) {
    DiskResult result = work(job);
    const bool is_told = job.kind == DiskJob::Kind::kWrite || job.kind == DiskJob::Kind::kRead;
    if (!is_told) continue;
    {
      std::lock_guard lock(mutex_);
      results_.push_back(std::move(result));
    }
    has_results_.notify_one();
  }
}

// False: the queue has ended.
bool DiskQueue::next(DiskJob* job) {
  std::unique_lock lock(mutex_);
  has_jobs_.wait(lock, [this] { return ending_ || !reads_.empty() || !others_.empty(); });
  std::deque<DiskJob>& queue = reads_.empty() ? others_ : reads_;
  if (queue.empty()) return false;
  *job = queue.front();
  queue.pop_front();
  return true;
}

DiskResult DiskQueue::work(const DiskJob& job) {
  DiskResult result;
  result.job = job;
  const TimeUs begin = now_us();
  Status status;
  switch (job.kind) {
    case DiskJob::Kind::kWrite: {
      const Result<BlockPlace> place = store_.append(job.block, job.bytes);
      if (place.ok()) result.job.place = *place;
      if (!place.ok()) status = place.error();
      break;
    }
    case DiskJob::Kind::kRead:
      status = store_.read(job.place, job.block, job.bytes);
      break;
    case DiskJob::Kind::kKill:
      store_.kill(job.place);
      break;
    case DiskJob::Kind::kClear:
      store_.clear();
      break;
  }
  if (!status.ok()) {
    const ErrorCode code = status.error().code;
    result.outcome = code == ErrorCode::kNotFound  ? DiskResult::Outcome::kGone
                     : code == ErrorCode::kCorrupt ? DiskResult::Outcome::kUnsound
                                                   : DiskResult::Outcome::kFailed;
    result.failure = status.error().message;
  }
  result.dropped = store_.take_dropped();
  result.store_bytes = store_.num_bytes();
  result.us = now_us() - begin;
  return result;
}

}  // namespace headrace
