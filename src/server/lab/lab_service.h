// LabService: a laboratory beside a server: one thread that has its store, does what handlers ask
// one after the other, and tells listeners what happens.
//
// Handlers never wait for the disk or for another process that writes. All calls are thread-safe;
// nobody calls after stop() has begun but to be refused.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "lab/known_effects.h"
#include "lab/machine_view.h"
#include "lab/store.h"
#include "server/lab/engine_watch.h"
#include "server/lab/event_feed.h"

namespace headrace::lab {

class LabService {
 public:
  // What a task may use, on the service's thread.
  struct Bench {
    Store& store;
    KnownEffects effects = {};
    MachineView machine = MachineView();
    EventFeed feed;
  };
  using Task = std::function<void(Bench&)>;

  // Errors of Store::open and EngineWatch::create.
  static Result<std::unique_ptr<LabService>> open(const std::string& folder,
                                                  const std::vector<std::string>& engine_urls);
  ~LabService() { stop(); }

  // kExhausted: too many wait; kUnavailable: the server stops.
  Status submit(Task task);
  // Ends all streams, drops what waits and joins the thread.
  void stop();

  const std::string& folder() const { return store_->folder(); }
  EngineWatch& engines() { return *engines_; }

 private:
  LabService(std::unique_ptr<Store> store, std::unique_ptr<EngineWatch> engines);
  void run();

  const std::unique_ptr<Store> store_;  // its thread's
  const std::unique_ptr<EngineWatch> engines_;
  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool closed_ = false;
  std::thread thread_;  // last
};

}  // namespace headrace::lab
