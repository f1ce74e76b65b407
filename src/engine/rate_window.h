// RateWindow: tokens per second over about the last second of work; idle time does not count.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace headrace {

class RateWindow {
 public:
  void add(uint64_t num_tokens, TimeUs busy_us) {
    current_.num_tokens += num_tokens;
    current_.busy_us += busy_us;
    if (current_.busy_us < kHalfWindowUs) return;
    previous_ = current_;
    current_ = {};
  }
  double per_second() const {
    const TimeUs busy_us = previous_.busy_us + current_.busy_us;
    const uint64_t num_tokens = previous_.num_tokens + current_.num_tokens;
    return busy_us > 0 ? static_cast<double>(num_tokens) * 1e6 / static_cast<double>(busy_us) : 0;
  }

 private:
  static constexpr TimeUs kHalfWindowUs = 500'000;
  struct Half {
    uint64_t num_tokens = 0;
    TimeUs busy_us = 0;
  };
  Half previous_, current_;
};

}  // namespace headrace
