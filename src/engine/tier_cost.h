// TierCost: whether bringing blocks back takes less time than computing them again.
//
// Both rates are measured: computing by steps with many tokens, bringing by fetches that ended.
// What has not been measured is tried. Each refusal makes fetching look a little cheaper, so that
// a disk that was slow once is tried again. A function of the calls; times are arguments.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace headrace {

class TierCost {
 public:
  // A step of so many tokens took so long.
  void computed(int64_t num_tokens, TimeUs us) {
    if (num_tokens >= kFewTokens) mix(num_tokens, us, &us_per_token_);
  }
  // Tokens of blocks that were asked for came, or came not, in this time.
  void fetched(int64_t num_tokens, TimeUs us) { mix(num_tokens, us, &fetch_us_per_token_); }
  // Whether to fetch. A refusal is remembered.
  bool pays() {
    if (us_per_token_ <= 0 || fetch_us_per_token_ < us_per_token_) return true;
    fetch_us_per_token_ *= 1 - kDoubt;
    return false;
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
  static constexpr double kDoubt = 0.02;
  static constexpr double kPatience = 1.25;
  static constexpr TimeUs kShortest = 20'000;  // less is the noise of a busy machine
  static constexpr TimeUs kUnknown = 1'000'000;

  static void mix(int64_t num_tokens, TimeUs us, double* rate) {
    const double measured = static_cast<double>(us) / static_cast<double>(num_tokens);
    *rate = *rate <= 0 ? measured : *rate + kNewest * (measured - *rate);
  }

  double us_per_token_ = 0;  // 0: not measured
  double fetch_us_per_token_ = 0;
};

}  // namespace headrace
