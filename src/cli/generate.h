// generate: one request through the engine, its text written as it comes. For `run` and `chat`.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "options.h"
#include "text/tokenizer.h"

namespace headrace {

struct Answer {
  std::string text;
  FinishReason reason = FinishReason::kNone;
  Usage usage;
  RequestTimes times;
};

struct GenerateArgs {
  Engine& engine;
  const Tokenizer& tokenizer;
  Request request;
  std::vector<std::string> stop_strings;
  std::function<void(std::string_view)> write;     // called on this thread with each piece
  const std::atomic<bool>* interrupted = nullptr;  // true: cancel and return what there is
};

// Blocks until the request has ended. An error if the engine refused it or it failed while running.
Result<Answer> generate(GenerateArgs args);

// Sampling options of `run` and `chat` as a request without a prompt.
Request request_from_options(const Options& options);
std::vector<std::string> stop_strings_from_options(const Options& options);

// "23 prompt tokens, 120 tokens, first after 45 ms, 61.3 tok/s".
std::string describe_speed(const Answer& answer);

// SIGINT and SIGTERM set the flag instead of ending the process, until destroyed. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>& flag() const;
  void reset();
};

}  // namespace headrace
