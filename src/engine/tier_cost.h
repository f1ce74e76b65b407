// TierCost: whether bringing blocks back takes less time than computing them again.
//
// Both are measured: computing here, by steps with many tokens; bringing by the tier. What has not
// been measured is tried. Each refusal makes bringing look a little cheaper until something was
// brought again: so a disk that was slow once is tried again. A function of the calls; times are
// arguments.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace headrace {

class TierCost {
 public:
  // A step of so many tokens took so long.
  void computed(int64_t num_tokens, TimeUs us) {
    if (num_tokens < kFewTokens) return;
    const double measured = static_cast<double>(us) / static_cast<double>(num_tokens);
    us_per_token_ =
        us_per_token_ <= 0 ? measured : us_per_token_ + kNewest * (measured - us_per_token_);
  }
  // Whether to bring blocks of so many tokens, which takes fetch_us (0: not measured). The answer
  // is remembered.
  bool pays(int64_t num_tokens, TimeUs fetch_us) {
    const double needed = trust_ * static_cast<double>(fetch_us);
    const bool is_faster =
        us_per_token_ <= 0 || needed < us_per_token_ * static_cast<double>(num_tokens);
    trust_ = is_faster ? 1 : trust_ * kDoubt;
    return is_faster;
  }
  // How long to wait for them: a little longer than computing them would take.
  TimeUs patience(int64_t num_tokens) const {
    if (us_per_token_ <= 0) return kUnknown;
    const double us = kPatience * us_per_token_ * static_cast<double>(num_tokens);
    return std::max(kShortest, static_cast<TimeUs>(us));
  }

 private:
  static constexpr int64_t kFewTokens = 32;  // fewer are a step whose time is that of its weights
  static constexpr double kNewest = 0.25;    // weight of a measurement
  static constexpr double kDoubt = 0.98;
  static constexpr double kPatience = 1.25;
  static constexpr TimeUs kShortest = 20'000;  // less is the noise of a busy machine
  static constexpr TimeUs kUnknown = 1'000'000;

  double us_per_token_ = 0;  // 0: not measured
  double trust_ = 1;         // in what was measured of bringing
};

}  // namespace headrace
