// generate: one request through the engine, its text written as it comes. For `run` and `chat`.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context_limit.h"
#include "engine/engine.h"
#include "options.h"
#include "server/api/bundle.h"
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
  // Called on this thread with each piece; false: it does not arrive, so stop.
  std::function<bool(std::string_view)> write;
  const std::atomic<bool>* interrupted = nullptr;  // true: cancel and return what there is
};

// Blocks until the request has ended. An error if the engine refused it or it failed while running.
Result<Answer> generate(GenerateArgs args);

// Sampling options of `run` and `chat` as a request without a prompt: the option, else what every
// interface does for this model (default_sampling); without --seed a random one.
Request request_from_options(const Options& options, const SamplingDefaults& recommended);
std::vector<std::string> stop_strings_from_options(const Options& options);

// "23 prompt tokens, 120 tokens, first after 45 ms, then 61.3 tok/s, seed 7".
std::string describe_speed(const Answer& answer, uint64_t seed);

// Why an answer that ended with kLength is not longer, and what to do.
std::string describe_cut(const Answer& answer, const ContextLimit& context);
// What a model without a chat template does instead of answering.
std::string base_model_note();

// SIGINT and SIGTERM set the flag instead of ending the process, until destroyed. One at a time.
class InterruptGuard {
 public:
  // hang_up_too: SIGHUP does as well, unless it is ignored (nohup), for who leaves programs of
  // others behind when the terminal closes.
  explicit InterruptGuard(bool hang_up_too = false);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>& flag() const;
  // The signal that set it, or 0. After SIGTERM reset() does nothing: the program shall end.
  int signal() const;
  // Readable from the signal until reset(): for poll. A signal may meet any thread, so that it does
  // not reliably interrupt a read.
  int descriptor() const;
  void reset();

 private:
  bool takes_hang_up_ = false;
};

}  // namespace headrace
