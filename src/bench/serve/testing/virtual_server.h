// For tests: a server whose latencies are known and whose time is made up, so that what a load must
// find of it follows from arithmetic.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "bench/serve/transport.h"

namespace headrace::loads::testing {

// `workers` requests at a time, the others in a queue. `prefill(id)` seconds to the first token,
// then one token every `gap(id)` seconds.
class VirtualServer final : public Transport {
 public:
  std::function<double(size_t)> prefill = [](size_t) { return 0.1; };
  std::function<double(size_t)> gap = [](size_t) { return 0.02; };
  int tokens = 11;
  size_t workers = 1000000;
  size_t dies_after = 1000000;  // requests; further ones find nobody
  std::vector<std::string> bodies = {};

  TimeUs now() override { return time_; }

  void send(size_t id, std::string body) override {
    bodies.push_back(std::move(body));
    Answered answer;
    answer.id = id;
    if (bodies.size() > dies_after) {
      answer.ended = time_ + 1;
      answer.notes.error = "Connection refused";
      running_.push_back(answer);
      return;
    }
    TimeUs at = std::max(time_, free_worker()) + microseconds(prefill(id));
    for (int i = 0; i < tokens; ++i) {
      if (i > 0) at += microseconds(gap(id));
      answer.notes.pieces.push_back(at);
    }
    ends_.push_back(at);
    answer.ended = at;
    answer.status = 200;
    answer.connected = true;
    answer.notes.done = true;
    answer.notes.text = "answer";
    answer.notes.prompt_tokens = 7;
    running_.push_back(answer);
  }

  std::vector<Answered> wait(TimeUs until) override {
    TimeUs first = until;
    for (const Answered& answer : running_) first = std::min(first, answer.ended);
    time_ = std::max(time_, first);
    std::vector<Answered> ended;
    for (const Answered& answer : running_) {
      if (answer.ended <= time_) ended.push_back(answer);
    }
    std::erase_if(running_, [&](const Answered& answer) { return answer.ended <= time_; });
    return ended;
  }
  void drop_all() override { running_.clear(); }
  double cpu_seconds() override { return cpu_share * 1e-6 * static_cast<double>(time_); }

  double cpu_share = 0.01;

 private:
  static TimeUs microseconds(double seconds) { return static_cast<TimeUs>(seconds * 1e6 + 0.5); }
  // When the request that begins next finds a worker.
  TimeUs free_worker() {
    std::erase_if(ends_, [&](TimeUs end) { return end <= time_; });
    if (ends_.size() < workers) return 0;
    std::ranges::sort(ends_, std::greater<>());
    return ends_[workers - 1];
  }

  TimeUs time_ = 5'000'000;
  std::vector<Answered> running_;
  std::vector<TimeUs> ends_;  // of those that are not over
};

}  // namespace headrace::loads::testing
