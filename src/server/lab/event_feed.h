// EventFeed: what happens in a laboratory, for those who listen over HTTP.
//
// A listener is a place in the log, and what it has been told of the queue: it holds no entry, is
// told each of them once and in order however slowly it reads, and costs nothing while nothing
// happens. One thread, which also has the store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/known_effects.h"
#include "lab/store.h"
#include "server/http/http.h"

namespace headrace::lab {

inline constexpr size_t kMaxListeners = 64;

class EventFeed {
 public:
  explicit EventFeed(Store& store) : store_(store) {}

  // Begins the stream, behind this entry of the log. False: too many listen.
  bool add(std::shared_ptr<ResponseWriter> writer, int64_t after_id);
  // Tells everyone what is new, as far as they take it. True: somebody has not been told all yet.
  // An error is told to all, and ends their streams.
  bool advance();
  bool is_empty() const { return listeners_.empty(); }
  void close();  // ends all streams

 private:
  struct Listener {
    std::shared_ptr<ResponseWriter> writer;
    int64_t told_id = 0;      // of the log
    uint64_t told_order = 0;  // of order_no_; 0: none
  };
  Result<bool> tell_all();
  Status look_at_queue();
  Result<bool> tell(Listener& listener);

  Store& store_;
  KnownEffects effects_;
  std::vector<Listener> listeners_;
  int64_t last_id_ = -1;   // of the log, at the last look
  std::string order_;      // who runs, waits and is paused
  std::string queue_;      // the event's data
  uint64_t order_no_ = 0;  // changes with order_
};

}  // namespace headrace::lab
