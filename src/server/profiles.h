// Profiles: where the time of a model's next steps goes, for who asks while it serves. One at a
// time; each waits for its steps on a thread of its own.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "server/served_model.h"

namespace headrace {

class Profiles {
 public:
  // The profile as JSON (profile_json.h). kUnavailable: no step ran in time, or the server stops.
  using Done = std::function<void(Result<std::string>)>;

  Profiles() = default;
  ~Profiles() { stop(); }

  // Calls done on its thread when so many steps are recorded, or patience is over and there are
  // some. kInvalidArgument: so many steps are none or too many. kExhausted: another is being made.
  // kUnsupported: this engine does not tell.
  Status start(std::shared_ptr<const ServedModel> model, int num_steps,
               std::chrono::milliseconds patience, Done done);
  // Ends the one under way, and waits for it.
  void stop();

 private:
  Result<std::string> record(const ServedModel& model, std::chrono::milliseconds patience);

  std::mutex mutex_;  // guards thread_
  std::thread thread_;
  std::atomic<bool> is_busy_ = false;
  std::atomic<bool> stopping_ = false;
};

}  // namespace headrace
