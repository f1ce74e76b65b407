#include "server/request_log.h"

#include <fmt/format.h>

#include <array>

#include "base/log.h"
#include "base/strings.h"
#include "server/api/json.h"

namespace headrace {
namespace {

constexpr size_t kShownBytes = 200;  // of a path or method

std::string_view shown(std::string_view text) { return text.substr(0, kShownBytes); }

// Printable ASCII without spaces, quotes and backslashes; all else as \xNN.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : shown(text)) {
    if (c > ' ' && c < 0x7F && c != '"' && c != '\\') {
      out += c;
    } else {
      append_format(out, "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out.empty() ? "-" : out;
}

struct Number {
  std::string_view name;
  int64_t value;  // negative: not known
};
struct Duration {
  std::string_view name;
  int64_t us;  // negative: not known
};

std::array<Number, 5> numbers_of(const RequestRecord& record) {
  return {{{"prompt_tokens", record.note.prompt_tokens},
           {"cached_tokens", record.note.cached_tokens},
           {"output_tokens", record.note.output_tokens},
           {"body_bytes", static_cast<int64_t>(record.body_bytes)},
           {"sent_bytes", static_cast<int64_t>(record.sent_bytes)}}};
}

std::array<Duration, 3> durations_of(const RequestRecord& record) {
  return {{{"queue_ms", record.note.queue_us},
           {"first_token_ms", record.note.first_token_us},
           {"total_ms", record.total_us}}};
}

}  // namespace

std::string_view name_of(RequestRecord::Ending ending) {
  switch (ending) {
    case RequestRecord::Ending::kWhole:
      return "whole";
    case RequestRecord::Ending::kClientLeft:
      return "client_left";
    case RequestRecord::Ending::kDropped:
      return "dropped";
  }
  return "unknown";
}

std::string request_text(const RequestRecord& record) {
  std::string line = fmt::format("request {} {} {} {} id={} peer={}", escaped(record.method),
                                 escaped(record.path), record.status, name_of(record.ending),
                                 escaped(record.request_id), escaped(record.peer));
  const auto append = [&](std::string_view name, const std::string& value) {
    append_format(line, " {}={}", name, value);
  };
  if (!record.key_name.empty()) append("key", escaped(record.key_name));
  if (!record.note.model.empty()) append("model", escaped(record.note.model));
  if (!record.note.answer_id.empty()) append("answer", escaped(record.note.answer_id));
  if (!record.note.finish.empty()) append("finish", escaped(record.note.finish));
  for (const Number& number : numbers_of(record)) {
    if (number.value >= 0) append(number.name, std::to_string(number.value));
  }
  for (const Duration& each : durations_of(record)) {
    if (each.us >= 0) append(each.name, fmt::format("{:.1f}", static_cast<double>(each.us) / 1e3));
  }
  return line;
}

std::string request_json(const RequestRecord& record) {
  JsonWriter json;
  json.open_object().text("event", "request");
  json.text("method", shown(record.method)).text("path", shown(record.path));
  json.text("route", record.route).integer("status", record.status);
  json.text("ending", name_of(record.ending)).text("request_id", record.request_id);
  json.text("peer", record.peer);
  if (!record.key_name.empty()) json.text("key", record.key_name);
  if (!record.note.model.empty()) json.text("model", record.note.model);
  if (!record.note.answer_id.empty()) json.text("answer_id", record.note.answer_id);
  if (!record.note.finish.empty()) json.text("finish", record.note.finish);
  for (const Number& number : numbers_of(record)) {
    if (number.value >= 0) json.integer(number.name, number.value);
  }
  for (const Duration& each : durations_of(record)) {
    if (each.us >= 0) json.number(each.name, static_cast<double>(each.us) / 1e3);
  }
  json.close_object();
  const std::string object = json.take();
  return object.substr(1, object.size() - 2);
}

void log_request(const RequestRecord& record) {
  const LogLevel level = record.is_public && record.status > 0 && record.status < 400
                             ? LogLevel::kDebug
                             : LogLevel::kInfo;
  if (!log_enabled(level)) return;
  log_format() == LogFormat::kJson ? log_members(level, request_json(record))
                                   : log_line(level, request_text(record));
}

}  // namespace headrace
