// FinishedRequests: the newest requests that have ended, with what they took; for the page.
//
// A ring of fixed size. Never text of a prompt or an answer, never a key, never what a client wrote
// but its request id. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/http/http.h"

namespace headrace {

struct FinishedRequest {
  std::string request_id;
  std::string_view route;  // the path of its row
  uint64_t client = 0;     // who asked
  int64_t ended_ms = 0;    // wall clock, since 1970
  int status = 0;
  RequestRecord::Ending ending = RequestRecord::Ending::kWhole;
  TimeUs total_us = 0;
  RequestNote note;
};

class FinishedRequests {
 public:
  static constexpr size_t kMost = 200;
  static constexpr size_t kMostIdBytes = 128;  // of a request id; the rest is cut off

  // Keeps what made an answer, and what was refused one; not probes, files or figures.
  void add(const RequestRecord& record, int64_t now_ms);
  // Newest first. client: whose; nothing: everyone's.
  std::vector<FinishedRequest> newest(std::optional<uint64_t> client) const;

 private:
  mutable std::mutex mutex_;
  std::deque<FinishedRequest> kept_;  // guarded; oldest first
};

}  // namespace headrace
