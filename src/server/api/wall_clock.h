// wall_clock: the time of day, as answers write it.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

int64_t wall_clock_us();  // since 1970, UTC
int64_t unix_seconds();   // the same in seconds
// "2026-01-02T03:04:05Z"; with a fraction of a second where there is one. Source: RFC 3339.
std::string rfc3339(int64_t unix_us);

}  // namespace headrace
