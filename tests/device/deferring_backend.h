// DeferringBackend: a backend that does no op before it must. Who looks at a result without
// waiting for it (Backend::synchronize, download, a view) finds what was there before.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "device/wrapped_backend.h"

namespace headrace::device {

class DeferringBackend final : public WrappedBackend {
 public:
  explicit DeferringBackend(std::unique_ptr<Backend> inner) : WrappedBackend(std::move(inner)) {}

  size_t num_waiting() const { return waiting_.size(); }
  size_t most_waiting() const { return most_waiting_; }

 private:
  void later(Work work) override {
    waiting_.push_back(std::move(work));
    most_waiting_ = std::max(most_waiting_, waiting_.size());
  }
  void now(const Work& work) override {
    for (; !waiting_.empty(); waiting_.pop_front()) waiting_.front()(inner());
    work(inner());
  }

  std::deque<Work> waiting_;
  size_t most_waiting_ = 0;
};

}  // namespace headrace::device
