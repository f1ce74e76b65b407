// KvPublisher: tells routers over ZeroMQ what the prefix cache holds (kv_batch.h).
//
// A PUB socket sends each batch as three frames: topic, number (8 bytes, big-endian), batch. A
// ROUTER socket answers a number with the batches since then that are still kept, and ends with the
// number -1. The engine only puts events into a bounded queue; a thread of the publisher's own
// sends them. Where the queue is full events are lost, which is counted and told as "all blocks
// cleared": readers forget too much rather than believe what is no longer so. Whoever connects
// learns the token ids of prompts: let it listen where only the router is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "server/telemetry/kv_batch.h"

namespace headrace {

struct KvPublisherOptions {
  std::string endpoint;         // "tcp://127.0.0.1:5557"
  std::string replay_endpoint;  // empty: nothing is sent again
  std::string topic;
  KvBatchForm form = KvBatchForm::kMaps;
  size_t max_queued_events = 65'536;
  size_t max_kept_batches = 10'000;
};

class KvPublisher final : public KvEventSink {
 public:
  // kIo: an endpoint cannot be bound.
  static Result<std::unique_ptr<KvPublisher>> create(const KvPublisherOptions& options);
  ~KvPublisher() override;  // what is queued is sent first

  void on_kv_event(const KvEvent& event) override;

  uint64_t num_dropped() const { return dropped_.value(); }
  uint64_t num_batches() const { return batches_.value(); }

 private:
  struct Sockets;

  KvPublisher(const KvPublisherOptions& options, std::unique_ptr<Sockets> sockets);
  void run();
  void take();
  void send(std::span<const KvEvent> events);

  const KvPublisherOptions options_;
  const std::unique_ptr<Sockets> sockets_;  // of the thread
  std::vector<KvEvent> taken_;              // of the thread: changes places with queue_
  Counter dropped_, batches_;
  std::mutex mutex_;  // guards all below
  std::condition_variable ready_;
  std::vector<KvEvent> queue_;
  bool overflowed_ = false;  // since the last take()
  bool closed_ = false;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace headrace
