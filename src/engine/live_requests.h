// LiveRequests: who is accepted and not finished, how many places each client holds, and who asked
// for an end.
//
// What callers on any thread and the engine's thread share. Deterministic, without a lock: the
// owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace headrace {

// A request that its caller ends.
struct Ending {
  RequestId id = 0;
  FinishReason reason = FinishReason::kCancelled;
};

class LiveRequests {
 public:
  explicit LiveRequests(size_t max_live) : max_live_(max_live) {}

  // A place for one more request of this client. kUnavailable once closed; kExhausted when all
  // places are taken, or the client holds three times as many as are free.
  Result<RequestId> accept(uint64_t client);
  // Notes the end once; of what is not live, or ends already, nothing.
  void end(RequestId id, FinishReason reason);
  void end_all(FinishReason reason);
  // What was noted since the last call, in order.
  std::vector<Ending> take_endings() { return std::exchange(endings_, {}); }
  // It was told its end: the place is free.
  void remove(RequestId id);

  void close() { closed_ = true; }  // accepts nothing more
  size_t size() const { return live_.size(); }
  bool empty() const { return live_.empty(); }

 private:
  struct Live {
    uint64_t client = 0;
    bool ended = false;  // by its caller
  };
  Status check_place(uint64_t client) const;

  const size_t max_live_;
  std::map<RequestId, Live> live_;
  std::map<uint64_t, size_t> live_of_client_;  // how many of live_; none is 0
  std::vector<Ending> endings_;                // of live requests, each once
  RequestId next_id_ = 1;
  bool closed_ = false;
};

}  // namespace headrace
