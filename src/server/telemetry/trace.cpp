#include "server/telemetry/trace.h"

#include <algorithm>
#include <random>
#include <variant>

namespace headrace {
namespace {

constexpr int kServerSpan = 2;
constexpr int kErrorStatus = 2;

using Value = std::variant<std::monostate, std::string_view, int64_t, double>;

Value known(std::string_view text) { return text.empty() ? Value() : Value(text); }
Value known(int64_t number) { return number < 0 ? Value() : Value(number); }

std::string_view operation_of(std::string_view route) {
  constexpr std::pair<std::string_view, std::string_view> kOperations[] = {
      {"/v1/chat/completions", "chat"},    {"/v1/completions", "text_completion"},
      {"/v1/responses", "chat"},           {"/v1/messages", "chat"},
      {"/v1/embeddings", "embeddings"},    {"/api/chat", "chat"},
      {"/api/generate", "text_completion"}};
  for (const auto& [path, operation] : kOperations) {
    if (route == path) return operation;
  }
  return {};
}

struct AttributeRow {
  std::string_view name;
  Value (*value)(const RequestRecord& record);
};

constexpr AttributeRow kAttributes[] = {
    {"http.request.method", [](const RequestRecord& r) { return known(r.method); }},
    {"http.route", [](const RequestRecord& r) { return known(r.route); }},
    {"http.response.status_code", [](const RequestRecord& r) { return Value(int64_t{r.status}); }},
    {"http.request.body.size", [](const RequestRecord& r) { return Value(int64_t(r.body_bytes)); }},
    {"client.address", [](const RequestRecord& r) { return known(r.peer); }},
    {"headrace.request.id", [](const RequestRecord& r) { return known(r.request_id); }},
    {"headrace.key.name", [](const RequestRecord& r) { return known(r.key_name); }},
    {"gen_ai.operation.name", [](const RequestRecord& r) { return known(operation_of(r.route)); }},
    {"gen_ai.request.model", [](const RequestRecord& r) { return known(r.note.model); }},
    {"gen_ai.response.model", [](const RequestRecord& r) { return known(r.note.model); }},
    {"gen_ai.response.id", [](const RequestRecord& r) { return known(r.note.answer_id); }},
    {"gen_ai.response.finish_reason", [](const RequestRecord& r) { return known(r.note.finish); }},
    {"gen_ai.usage.input_tokens",
     [](const RequestRecord& r) { return known(r.note.prompt_tokens); }},
    {"gen_ai.usage.cached_tokens",
     [](const RequestRecord& r) { return known(r.note.cached_tokens); }},
    {"gen_ai.usage.output_tokens",
     [](const RequestRecord& r) { return known(r.note.output_tokens); }},
    {"gen_ai.latency.time_in_queue",
     [](const RequestRecord& r) {
       return r.note.queue_us < 0 ? Value() : Value(double(r.note.queue_us) * 1e-6);
     }},
    {"gen_ai.latency.time_to_first_token",
     [](const RequestRecord& r) {
       return r.note.first_token_us < 0 ? Value() : Value(double(r.note.first_token_us) * 1e-6);
     }},
};

void write_attribute(JsonWriter& json, std::string_view name, const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return;
  json.open_object().text("key", name).key("value").open_object();
  if (const auto* text = std::get_if<std::string_view>(&value)) json.text("stringValue", *text);
  // Whole numbers of 64 bits are texts in OTLP's JSON.
  if (const auto* number = std::get_if<int64_t>(&value)) {
    json.text("intValue", std::to_string(*number));
  }
  if (const auto* number = std::get_if<double>(&value)) json.number("doubleValue", *number);
  json.close_object().close_object();
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

std::string random_id(size_t num_words) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id;
  for (size_t i = 0; i < num_words; ++i) id += fmt::format("{:016x}", random() | 1);
  return id;
}

}  // namespace

// VERSION-TRACE-SPAN-FLAGS; later versions than 00 may go on after a further dash.
std::optional<TraceParent> parse_trace_parent(std::string_view header) {
  constexpr size_t kSize = 55;
  if (header.size() < kSize || header[2] != '-' || header[35] != '-' || header[52] != '-') {
    return std::nullopt;
  }
  const std::string_view version = header.substr(0, 2), flags = header.substr(53, 2);
  const bool is_whole = header.size() == kSize || (version != "00" && header[kSize] == '-');
  if (!is_hex(version) || version == "ff" || !is_hex(flags) || !is_whole) return std::nullopt;
  TraceParent parent{std::string(header.substr(3, 32)), std::string(header.substr(36, 16)), true};
  if (!is_id(parent.trace_id) || !is_id(parent.span_id)) return std::nullopt;
  const char last = flags[1];
  parent.sampled = ((last <= '9' ? last - '0' : last - 'a' + 10) & 1) != 0;
  return parent;
}

std::optional<TraceSpan> span_of(const RequestRecord& record, int64_t now_ns) {
  if (record.is_public || record.method.empty()) return std::nullopt;
  TraceSpan span;
  if (const auto parent = parse_trace_parent(record.trace_parent)) {
    if (!parent->sampled) return std::nullopt;
    span.trace_id = parent->trace_id;
    span.parent_id = parent->span_id;
  } else {
    span.trace_id = random_id(2);
  }
  span.span_id = random_id(1);
  span.end_ns = now_ns;
  span.start_ns = now_ns - record.total_us * 1000;
  span.record = record;
  return span;
}

void write_span(JsonWriter& json, const TraceSpan& span) {
  const RequestRecord& record = span.record;
  json.open_object().text("traceId", span.trace_id).text("spanId", span.span_id);
  if (!span.parent_id.empty()) json.text("parentSpanId", span.parent_id);
  json.text("name", record.route.empty() ? record.method
                                         : fmt::format("{} {}", record.method, record.route));
  json.integer("kind", kServerSpan);
  json.text("startTimeUnixNano", std::to_string(span.start_ns));
  json.text("endTimeUnixNano", std::to_string(span.end_ns)).key("attributes").open_array();
  for (const AttributeRow& row : kAttributes) write_attribute(json, row.name, row.value(record));
  json.close_array();
  const bool failed = record.status >= 500 || record.ending != RequestRecord::Ending::kWhole;
  if (failed) json.key("status").open_object().integer("code", kErrorStatus).close_object();
  json.close_object();
}

}  // namespace headrace
