#include "server/api/responses/store.h"

namespace headrace {
namespace {

constexpr TimeUs kSweepPeriodUs = 1'000'000;

}  // namespace

size_t StoredResponse::bytes() const {
  return sizeof(StoredResponse) + id.size() + body.size() + items.size() + outputs.size();
}

ResponseStore::ResponseStore(size_t max_bytes, std::chrono::seconds time_to_live, TimeUs (*now)())
    : max_bytes_(max_bytes), time_to_live_us_(time_to_live.count() * 1'000'000), now_(now) {}

void ResponseStore::put(StoredResponse response) {
  const size_t needed = response.bytes();
  if (needed > max_bytes_) return;
  std::lock_guard lock(mutex_);
  drop_stale();
  while (bytes_ + needed > max_bytes_) drop(order_.begin());
  auto entry = std::make_shared<const StoredResponse>(std::move(response));
  const std::string_view id = entry->id;
  order_.push_back({std::move(entry), now_() + time_to_live_us_});
  by_id_.emplace(id, std::prev(order_.end()));
  bytes_ += needed;
}

ResponseStore::Entry ResponseStore::find(std::string_view id, uint64_t owner) {
  std::lock_guard lock(mutex_);
  drop_stale();
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->response->owner != owner) return nullptr;
  if (found->second->until <= now_()) return nullptr;
  order_.splice(order_.end(), order_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view id, uint64_t owner) {
  std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->response->owner != owner) return false;
  drop(found->second);
  return true;
}

size_t ResponseStore::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

// Use moves a response back without renewing it, so all of them are looked at, now and then.
void ResponseStore::drop_stale() {
  const TimeUs now = now_();
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweepPeriodUs;
  for (auto kept = order_.begin(); kept != order_.end();) {
    const auto next = std::next(kept);
    if (kept->until <= now) drop(kept);
    kept = next;
  }
}

void ResponseStore::drop(Order::iterator kept) {
  bytes_ -= kept->response->bytes();
  by_id_.erase(kept->response->id);
  order_.erase(kept);
}

}  // namespace headrace
