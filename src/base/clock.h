// Time as a value, so that schedulers and tests can turn it. Always steady, never wall-clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace headrace {

using TimeUs = int64_t;  // microseconds since an arbitrary origin

inline TimeUs now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace headrace
