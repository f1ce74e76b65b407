#include "server/finished_requests.h"

namespace headrace {
namespace {

bool is_of_interest(const RequestRecord& record) {
  if (record.is_public || record.route.empty()) return false;
  return !record.note.answer_id.empty() || (record.method == "POST" && record.status >= 400);
}

}  // namespace

void FinishedRequests::add(const RequestRecord& record, int64_t now_ms) {
  if (!is_of_interest(record)) return;
  FinishedRequest request{record.request_id.substr(0, kMostIdBytes),
                          record.route,
                          record.client,
                          now_ms,
                          record.status,
                          record.ending,
                          record.total_us,
                          record.note};
  std::lock_guard lock(mutex_);
  if (kept_.size() == kMost) kept_.pop_front();
  kept_.push_back(std::move(request));
}

std::vector<FinishedRequest> FinishedRequests::newest(std::optional<uint64_t> client) const {
  std::vector<FinishedRequest> found;
  std::lock_guard lock(mutex_);
  for (auto each = kept_.rbegin(); each != kept_.rend(); ++each) {
    if (!client || each->client == *client) found.push_back(*each);
  }
  return found;
}

}  // namespace headrace
