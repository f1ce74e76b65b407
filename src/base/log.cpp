#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace headrace {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = spdlog::stderr_color_mt("headrace");
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%-7l%$ %v");
    return created;
  }();
  return *instance;
}

std::atomic<LogFormat> chosen_format = LogFormat::kText;
std::atomic<uint64_t> num_lost = 0;

// Would a line be written at once?
bool has_room() {
  pollfd error_stream{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&error_stream, 1, 0) != 0;
}

// Control characters as \xNN, and in JSON as \u00NN with quotes and backslashes.
std::string escaped(std::string_view text, bool json) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (json && (c == '"' || c == '\\')) {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += json ? fmt::format("\\u{:04x}", byte) : fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// What goes into the pattern. Lost lines are told of by the first that is not.
void write_line(LogLevel level, const std::string& line) {
  if (!has_room()) {
    ++num_lost;
    return;
  }
  const uint64_t lost = num_lost.exchange(0);
  if (lost > 0) {
    const std::string note = fmt::format("{} log lines were lost: nobody read them", lost);
    logger().log(spdlog::level::warn, "{}",
                 log_format() == LogFormat::kJson ? "\"message\":\"" + note + "\"" : note);
  }
  logger().log(to_spdlog(level), "{}", line);
}

}  // namespace

void set_log_format(LogFormat format) {
  chosen_format = format;
  if (format == LogFormat::kJson) {
    logger().set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e","level":"%l",%v})");
  }
}

LogFormat log_format() { return chosen_format; }

void log_members(LogLevel level, const std::string& members) { write_line(level, members); }

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, const std::string& message) {
  const bool json = log_format() == LogFormat::kJson;
  const std::string line = escaped(message, json);
  write_line(level, json ? "\"message\":\"" + line + "\"" : line);
}

bool parse_log_level(std::string_view text, LogLevel* level) {
  constexpr std::pair<std::string_view, LogLevel> kNames[] = {{"debug", LogLevel::kDebug},
                                                              {"info", LogLevel::kInfo},
                                                              {"warning", LogLevel::kWarning},
                                                              {"error", LogLevel::kError},
                                                              {"off", LogLevel::kOff}};
  for (const auto& [name, value] : kNames) {
    if (name == text) return *level = value, true;
  }
  return false;
}

}  // namespace headrace
