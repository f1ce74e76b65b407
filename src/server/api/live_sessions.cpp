#include "server/api/live_sessions.h"

#include <algorithm>
#include <tuple>

namespace headrace {

void LiveSessions::add(const void* session, LiveSession facts, std::function<void()> end) {
  std::lock_guard lock(mutex_);
  entries_[session] = {std::move(facts), std::move(end)};
}

void LiveSessions::remove(const void* session) {
  std::lock_guard lock(mutex_);
  entries_.erase(session);
}

std::vector<LiveSession> LiveSessions::list() const {
  std::vector<LiveSession> sessions;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [session, entry] : entries_) sessions.push_back(entry.facts);
  }
  std::sort(sessions.begin(), sessions.end(), [](const LiveSession& a, const LiveSession& b) {
    return std::tie(a.since, a.answer_id) < std::tie(b.since, b.answer_id);
  });
  return sessions;
}

size_t LiveSessions::abort(std::string_view id) {
  std::vector<std::function<void()>> ends;  // not called with the lock held
  {
    std::lock_guard lock(mutex_);
    for (const auto& [session, entry] : entries_) {
      const bool is_meant = entry.facts.request_id == id || entry.facts.answer_id == id;
      if (is_meant) ends.push_back(entry.end);
    }
  }
  for (const auto& end : ends) end();
  return ends.size();
}

}  // namespace headrace
