// CHECK and DCHECK: a condition that can only be false because of a bug in this program.
//
// CHECK is always compiled in; a failure prints place, condition and values, then aborts. Input
// from outside (files, requests) never goes through CHECK: it returns a Result (base/result.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace headrace {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& details);

}  // namespace headrace

// CHECK(rows > 0, "rows = {}", rows);  The message is optional.
#define CHECK(condition, ...)                                                                  \
  do {                                                                                         \
    if (!(condition)) [[unlikely]] {                                                           \
      ::headrace::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                          \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
  } while (false && (condition))
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
