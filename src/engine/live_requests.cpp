#include "engine/live_requests.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr size_t kPlacesPerFree = 3;

}  // namespace

Result<RequestId> LiveRequests::accept(uint64_t client) {
  if (closed_) return make_error(ErrorCode::kUnavailable, "the engine is shutting down");
  TRY(check_place(client));
  const RequestId id = next_id_++;
  live_.emplace(id, Live{client});
  ++live_of_client_[client];
  return id;
}

// A client may hold kPlacesPerFree times as many places as are still free: one alone can fill most
// of them, and another still finds some.
Status LiveRequests::check_place(uint64_t client) const {
  const size_t num_free = max_live_ - std::min(max_live_, live_.size());
  const auto held = live_of_client_.find(client);
  const size_t num_held = held == live_of_client_.end() ? 0 : held->second;
  if (num_free > 0 && num_held < kPlacesPerFree * num_free) return {};
  Error error =
      num_free == 0
          ? make_error(ErrorCode::kExhausted, "{} requests are running or waiting, the limit",
                       live_.size())
          : make_error(ErrorCode::kExhausted,
                       "{} requests of this client are running or waiting; the {} places that are "
                       "free are kept for others",
                       num_held, num_free);
  error.hint = "try again later";
  return error;
}

void LiveRequests::end(RequestId id, FinishReason reason) {
  const auto found = live_.find(id);
  if (found == live_.end() || std::exchange(found->second.ended, true)) return;
  endings_.push_back({id, reason});
}

void LiveRequests::end_all(FinishReason reason) {
  for (const auto& [id, live] : live_) end(id, reason);
}

void LiveRequests::remove(RequestId id) {
  const auto live = live_.find(id);
  CHECK(live != live_.end(), "request {} is not live", id);
  const auto held = live_of_client_.find(live->second.client);
  if (--held->second == 0) live_of_client_.erase(held);
  live_.erase(live);
}

}  // namespace headrace
