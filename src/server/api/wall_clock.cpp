#include "server/api/wall_clock.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace headrace {

int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t unix_seconds() { return wall_clock_us() / 1'000'000; }

std::string rfc3339(int64_t unix_us) {
  const auto seconds = static_cast<time_t>(unix_us / 1'000'000);
  const int64_t fraction = unix_us % 1'000'000;
  tm parts{};
  gmtime_r(&seconds, &parts);
  std::string text =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                  parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
  if (fraction > 0) text += fmt::format(".{:06}", fraction);
  return text + "Z";
}

}  // namespace headrace
