// LiveRequests: who is accepted and not finished, what each client holds of the places and of the
// room for prompts, and who asked for an end.
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

// What a request takes of the engine before it runs.
struct RequestSize {
  size_t places = 1;
  size_t prompt_tokens = 0;
  size_t bytes = 0;  // of memory
};

RequestSize size_of(const Request& request);

class LiveRequests {
 public:
  explicit LiveRequests(const RequestSize& most) : most_(most) {}

  // Room for one more request of this client. kUnavailable once closed; kExhausted when one of the
  // limits is reached, or the client would hold three times as much of it as would stay free. Who
  // holds nothing of what is empty is always taken.
  Result<RequestId> accept(uint64_t client, const RequestSize& size);
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
    RequestSize size;
    bool ended = false;  // by its caller
  };
  Status check_room(uint64_t client, const RequestSize& size) const;

  const RequestSize most_;
  RequestSize held_ = {.places = 0};
  std::map<RequestId, Live> live_;
  std::map<uint64_t, RequestSize> held_by_client_;  // of those that have some of live_
  std::vector<Ending> endings_;                     // of live requests, each once
  RequestId next_id_ = 1;
  bool closed_ = false;
};

}  // namespace headrace
