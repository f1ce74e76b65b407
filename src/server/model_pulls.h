// ModelPulls: models that clients ask the server to fetch into its store, each on a thread of its
// own. Who asks for one that is being fetched watches the same pull; a pull that nobody watches any
// more is stopped, and goes on from there when it is asked for again.
//
// Thread-safe. The watcher of a pull is called on its thread, and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace headrace {

struct PullState {
  enum class Kind : uint8_t { kRunning, kDone, kFailed };
  Kind kind = Kind::kRunning;
  uint64_t done_bytes = 0, total_bytes = 0;  // total 0: not known yet
  Error error;                               // kFailed
};

class ModelPulls {
 public:
  // False: nobody watches any more. After kDone or kFailed it is not called again.
  using Watcher = std::function<bool(const PullState&)>;

  explicit ModelPulls(std::string store_dir) : store_dir_(std::move(store_dir)) {}
  ~ModelPulls() { stop(); }

  // kInvalidArgument: a name that is none, or a URL: a server fetches from the hub and the package
  // index alone. kExhausted: as many pulls run as may; kUnavailable: the server stops.
  Status start(const std::string& spec, Watcher watcher);
  // Ends all pulls, and waits for them.
  void stop();

  const std::string& store_dir() const { return store_dir_; }

 private:
  struct Pull;

  void run(const std::shared_ptr<Pull>& pull);
  bool tell(Pull& pull, const PullState& state);

  const std::string store_dir_;
  std::mutex mutex_;  // guards all below
  std::map<std::string, std::shared_ptr<Pull>> pulls_;
  bool stopping_ = false;
};

}  // namespace headrace
