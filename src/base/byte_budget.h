// ByteBudget: memory that many owners share. Each takes a lease of what it holds, or is refused.
//
// It counts; it allocates nothing. A lease gives its bytes back when it goes. All calls on the
// budget are thread-safe; one lease belongs to one owner at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace headrace {

class ByteBudget {
 public:
  class Lease {
   public:
    Lease() = default;  // of no budget: every resize succeeds
    explicit Lease(ByteBudget& budget) : budget_(&budget) {}
    Lease(Lease&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Lease& operator=(Lease&& other) noexcept {
      if (this == &other) return *this;
      reset();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Lease() { reset(); }

    // Holds this many bytes from now on. False: there are not enough, and nothing changes.
    // Shrinking always succeeds.
    [[nodiscard]] bool resize(size_t bytes) {
      if (budget_ != nullptr && bytes > bytes_ && !budget_->take(bytes - bytes_)) return false;
      if (budget_ != nullptr && bytes < bytes_) budget_->give_back(bytes_ - bytes);
      bytes_ = bytes;
      return true;
    }
    [[nodiscard]] bool grow(size_t more) { return resize(bytes_ + more); }
    void reset() { (void)resize(0); }
    size_t bytes() const { return bytes_; }
    // What the budget holds in all: no lease can ever have more.
    size_t limit() const { return budget_ == nullptr ? SIZE_MAX : budget_->limit(); }

   private:
    ByteBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit ByteBudget(size_t limit) : limit_(limit) {}
  ~ByteBudget() { CHECK(used() == 0, "a budget of {} bytes ends with {} leased", limit_, used()); }
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  Lease lease() { return Lease(*this); }
  size_t limit() const { return limit_; }
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  // How often at least kLargeBytes were given back at once: large owners that have gone.
  size_t num_large_returns() const { return num_large_returns_.load(std::memory_order_relaxed); }

  static constexpr size_t kLargeBytes = 256 * 1024;

 private:
  bool take(size_t bytes) {
    size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t bytes) {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (bytes >= kLargeBytes) num_large_returns_.fetch_add(1, std::memory_order_relaxed);
  }

  const size_t limit_;
  std::atomic<size_t> used_ = 0;
  std::atomic<size_t> num_large_returns_ = 0;
};

}  // namespace headrace
