// One file over HTTP(S): resumed where it stopped, checked, then moved into place.
//
// A file that contradicts its name (a login page as model.gguf) or ends before its tensors do never
// gets that name. Bytes go to PATH.part; PATH.part.id remembers what they belong to (the server's
// entity tag) and how many there will be, so that a file that changed in between starts over, and
// an answer that says less is not the end. Connection errors, cuts, stalls, 408, 429 and 5xx are
// tried again with growing pauses; other answers end the download with what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace headrace::hub {

struct RetryPolicy {
  int max_attempts = 6;
  int backoff_ms = 500;
  int stall_seconds = 30;
};

struct DownloadRequest {
  std::string url;
  std::string token;            // empty: none; never sent to another host or port
  std::string path;             // where the whole file appears
  uint64_t expected_bytes = 0;  // 0: not known beforehand
  std::string sha256;           // empty: taken from the server's headers if they carry one
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
  RetryPolicy retry;
  std::function<bool()> stopped = {};  // as PullOptions::stopped
};

Status download(const DownloadRequest& request);

// A small document in memory; the same retries.
Result<std::string> fetch_text(const std::string& url, const std::string& token,
                               const RetryPolicy& retry, const std::function<bool()>& stopped = {});

// The URL as it may be shown: without user, query and fragment.
std::string shown_url(const std::string& url);

}  // namespace headrace::hub
