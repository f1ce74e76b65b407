// Log lines on standard error: "2026-11-21T10:40:00.123 info  message", or one JSON object a line.
// Control characters are escaped: a line stays one line. Thread-safe.
//
// A log that nobody reads never stops the program: where standard error has no room (a full pipe),
// lines are lost, and the next one that fits says how many.
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

// Set once at start-up from --log-format.
enum class LogFormat : unsigned char { kText, kJson };
void set_log_format(LogFormat format);
LogFormat log_format();
// In JSON: time, level, and these members ("\"a\":1,\"b\":2") in place of a message.
void log_members(LogLevel level, const std::string& members);

}  // namespace headrace

// LOG(kInfo, "loaded {} tensors", count);
#define LOG(level, ...)                                                              \
  do {                                                                               \
    if (::headrace::log_enabled(::headrace::LogLevel::level)) {                      \
      ::headrace::log_line(::headrace::LogLevel::level, ::fmt::format(__VA_ARGS__)); \
    }                                                                                \
  } while (false)
