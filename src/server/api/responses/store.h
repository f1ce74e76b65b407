// ResponseStore: answers of the Responses API that clients may read again or go on with.
//
// In memory alone. Bounded in bytes: the one that was not used for longest goes first, and none
// stays longer than its time to live (and a second). An answer is seen by its owner only: ids are
// no secrets. Thread-safe.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace headrace {

struct StoredResponse {
  std::string id;       // "resp_..."
  uint64_t owner = 0;   // who asked; 0 where there are no keys
  std::string body;     // the response object, JSON
  std::string items;    // JSON list: all items that the model was given
  std::string outputs;  // JSON list: the items of the answer

  size_t bytes() const;
};

class ResponseStore {
 public:
  using Entry = std::shared_ptr<const StoredResponse>;

  // max_bytes 0: nothing is kept.
  ResponseStore(size_t max_bytes, std::chrono::seconds time_to_live, TimeUs (*now)() = now_us);

  // One that is larger than the whole store is not kept.
  void put(StoredResponse response);
  Entry find(std::string_view id, uint64_t owner);  // null: there is none for this owner
  bool erase(std::string_view id, uint64_t owner);
  size_t bytes() const;

 private:
  struct Kept {
    Entry response;
    TimeUs until = 0;
  };
  using Order = std::list<Kept>;  // longest not used first

  void drop_stale();  // with mutex_ held
  void drop(Order::iterator kept);

  const size_t max_bytes_;
  const TimeUs time_to_live_us_;
  TimeUs (*const now_)();
  mutable std::mutex mutex_;  // guards all below
  Order order_;
  std::unordered_map<std::string_view, Order::iterator> by_id_;  // views of the responses' ids
  size_t bytes_ = 0;
  TimeUs next_sweep_ = 0;
};

}  // namespace headrace
