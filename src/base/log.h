// Log lines on standard error: "2026-11-21T10:40:00.123 info  message". Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace headrace {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarning, kError, kOff };

// Set once at start-up from --log-level; "debug", "info", "warning", "error" or "off".
void set_log_level(LogLevel level);
bool parse_log_level(std::string_view text, LogLevel* level);
void log_line(LogLevel level, const std::string& message);
bool log_enabled(LogLevel level);

}  // namespace headrace

// LOG(kInfo, "loaded {} tensors", count);
#define LOG(level, ...)                                                              \
  do {                                                                               \
    if (::headrace::log_enabled(::headrace::LogLevel::level)) {                      \
      ::headrace::log_line(::headrace::LogLevel::level, ::fmt::format(__VA_ARGS__)); \
    }                                                                                \
  } while (false)
