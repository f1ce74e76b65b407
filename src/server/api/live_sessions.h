// LiveSessions: the answers that are being made, by the names that clients and logs know them
// under. Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace headrace {

struct LiveSession {
  std::string request_id;  // x-request-id
  std::string answer_id;   // "chatcmpl-..."
  TimeUs since = 0;
  uint64_t client = 0;  // who asked
};

class LiveSessions {
 public:
  // session: a name for it; end: ends it with an error that says so, on any thread.
  void add(const void* session, LiveSession facts, std::function<void()> end);
  void remove(const void* session);
  std::vector<LiveSession> list() const;  // oldest first
  // Ends all that have this request or answer id. How many there were.
  size_t abort(std::string_view id);

 private:
  struct Entry {
    LiveSession facts;
    std::function<void()> end;
  };

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Entry> entries_;  // guarded
};

}  // namespace headrace
