// CheckedSize: unsigned 64-bit arithmetic that remembers overflow.
//
// Every length, offset, count and product that comes from a file goes through it: operations on an
// overflowed value stay overflowed, so one test at the end of an expression is enough. A plain
// value; thread-safe as such.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace headrace {

class CheckedSize {
 public:
  constexpr CheckedSize(uint64_t value) : value_(value) {}  // NOLINT: implicit, for expressions

  constexpr bool ok() const { return ok_; }
  // Only after ok().
  constexpr uint64_t value() const {
    CHECK(ok_, "overflowed size used");
    return value_;
  }
  // ok() and value() <= limit: the usual bound check.
  constexpr bool at_most(uint64_t limit) const { return ok_ && value_ <= limit; }

  constexpr CheckedSize& operator+=(CheckedSize other) {
    ok_ = ok_ && other.ok_ && !__builtin_add_overflow(value_, other.value_, &value_);
    return *this;
  }
  constexpr CheckedSize& operator-=(CheckedSize other) {
    ok_ = ok_ && other.ok_ && !__builtin_sub_overflow(value_, other.value_, &value_);
    return *this;
  }
  constexpr CheckedSize& operator*=(CheckedSize other) {
    ok_ = ok_ && other.ok_ && !__builtin_mul_overflow(value_, other.value_, &value_);
    return *this;
  }
  friend constexpr CheckedSize operator+(CheckedSize a, CheckedSize b) { return a += b; }
  friend constexpr CheckedSize operator-(CheckedSize a, CheckedSize b) { return a -= b; }
  friend constexpr CheckedSize operator*(CheckedSize a, CheckedSize b) { return a *= b; }

  // Rounded up to a multiple of `multiple`, which is not 0.
  constexpr CheckedSize round_up(uint64_t multiple) const {
    CHECK(multiple != 0);
    if (!ok_ || value_ % multiple == 0) return *this;
    return *this + (multiple - value_ % multiple);
  }

 private:
  uint64_t value_ = 0;
  bool ok_ = true;
};

}  // namespace headrace
