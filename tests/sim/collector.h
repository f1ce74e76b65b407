// What tests of the engine share: a collector of one request's events, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace headrace {

// Collects the events of one request; thread-safe.
class Collector {
 public:
  // accept: how many events before the sink refuses; negative: never.
  explicit Collector(int accept = -1) : state_(std::make_shared<State>()) {
    state_->accept = accept;
  }

  EventSink sink() {
    return [state = state_](Event&& event) {
      std::lock_guard lock(state->mutex);
      if (event.kind == Event::Kind::kFinished) {
        ++state->num_terminal;
        state->last = std::move(event);
        state->finished.notify_all();
        return false;  // ignored by contract
      }
      if (state->num_terminal > 0) state->late = true;
      if (state->accept >= 0 && state->num_events >= state->accept) {
        ++state->num_refused;
        return false;
      }
      ++state->num_events;
      if (event.kind == Event::Kind::kToken) {
        state->output.push_back(event.token_id);
        state->logprobs.push_back(std::move(event.logprobs));
      } else {
        state->prompt_logprobs = std::move(event.prompt_logprobs);
      }
      return true;
    };
  }
  Event wait() {
    std::unique_lock lock(state_->mutex);
    const bool ended = state_->finished.wait_for(lock, std::chrono::seconds(60),
                                                 [this] { return state_->num_terminal > 0; });
    EXPECT_TRUE(ended) << "no terminal event";
    return state_->last;
  }
  bool wait_for_tokens(size_t count) {
    for (int i = 0; i < 20'000; ++i) {
      {
        std::lock_guard lock(state_->mutex);
        if (state_->output.size() >= count) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::vector<int32_t> output() const {
    std::lock_guard lock(state_->mutex);
    return state_->output;
  }
  std::vector<std::optional<TokenLogprobs>> logprobs() const {
    std::lock_guard lock(state_->mutex);
    return state_->logprobs;
  }
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs() const {
    std::lock_guard lock(state_->mutex);
    return state_->prompt_logprobs;
  }
  int num_terminal() const {
    std::lock_guard lock(state_->mutex);
    return state_->num_terminal;
  }
  int num_refused() const {
    std::lock_guard lock(state_->mutex);
    return state_->num_refused;
  }
  bool late() const {
    std::lock_guard lock(state_->mutex);
    return state_->late;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable finished;
    int accept = -1;
    int num_events = 0;
    int num_refused = 0;
    int num_terminal = 0;
    bool late = false;
    std::vector<int32_t> output;
    std::vector<std::optional<TokenLogprobs>> logprobs;
    std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
    Event last;
  };
  std::shared_ptr<State> state_;
};

inline bool equal_logprobs(const std::vector<std::optional<TokenLogprobs>>& a,
                           const std::vector<std::optional<TokenLogprobs>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].has_value() != b[i].has_value()) return false;
    if (!a[i]) continue;
    if (a[i]->logprob != b[i]->logprob || a[i]->rank != b[i]->rank || a[i]->top != b[i]->top) {
      return false;
    }
  }
  return true;
}

// Runs all at once; the collectors in order.
inline std::vector<Collector> run_together(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Collector> collectors(requests.size());
  for (Collector& collector : collectors) collector = Collector();
  for (size_t i = 0; i < requests.size(); ++i) {
    const Result<RequestId> id = engine.submit(requests[i], collectors[i].sink());
    CHECK(id.ok(), "{}", id.error().message);
  }
  for (Collector& collector : collectors) collector.wait();
  return collectors;
}

// Token for token and log-prob for log-prob, bit for bit.
inline void expect_equal(const std::vector<Collector>& a, const std::vector<Collector>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].output(), b[i].output()) << "request " << i;
    EXPECT_TRUE(equal_logprobs(a[i].logprobs(), b[i].logprobs())) << "request " << i;
    EXPECT_TRUE(equal_logprobs(a[i].prompt_logprobs(), b[i].prompt_logprobs())) << "request " << i;
    EXPECT_EQ(a[i].output().size(), a[i].logprobs().size());
  }
}

}  // namespace headrace
