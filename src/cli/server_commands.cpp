// headrace ps, headrace stop: what a running server holds, and letting go of it.

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "base/strings.h"
#include "cli/command.h"
#include "cli/http_client.h"
#include "cli/word_wrap.h"

namespace headrace {
namespace {

namespace json = boost::json;

constexpr std::string_view kDefaultServer = "http://127.0.0.1:8080";
constexpr int kYearsOfForEver = 50;

Result<json::value> ask(const Options& options, std::string_view path, const std::string& body) {
  const std::string& typed = options.text("--server");
  HttpCall call =
      call_of(options, server_address(typed.empty() ? std::string(kDefaultServer) : typed), path);
  call.body = body;
  const HttpAnswer answer = TRY(call_server(call));
  boost::system::error_code error;
  json::value parsed = json::parse(answer.body, error);
  if (answer.status == 200 && !error) return parsed;
  const json::object* object = error ? nullptr : parsed.if_object();
  const json::value* reason = object == nullptr ? nullptr : object->if_contains("error");
  return make_error(answer.status == 404 ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                    "{} answers with status {}{}", call.url, answer.status,
                    reason != nullptr && reason->is_string()
                        ? ": " + std::string(std::string_view(reason->get_string()))
                        : "");
}

std::string shown(const json::object& row, std::string_view name) {
  const json::value* value = row.if_contains(name);
  if (value == nullptr || !value->is_string()) return "";
  return without_controls(std::string_view(value->get_string()));
}

// Servers give a time for every model: decades off, where it stays.
std::string shown_until(const json::object& row) {
  const std::string until = shown(row, "expires_at");
  int year = 0;
  const char* const end = until.data() + until.size();
  const bool is_known = std::from_chars(until.data(), end, year).ec == std::errc();
  const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const int this_year = static_cast<int>(std::chrono::year_month_day(today).year());
  return is_known && year - this_year >= kYearsOfForEver ? "for ever" : until;
}

std::string shown_size(const json::object& row) {
  const json::value* value = row.if_contains("size");
  if (value == nullptr) return "";
  boost::system::error_code error;
  const auto size = value->to_number<size_t>(error);
  return error ? "" : format_bytes(size);
}

}  // namespace

// By the route that Ollama's clients use: any server that has it can be asked.
Result<int> run_ps(const Options& options) {
  const json::value answer = TRY(ask(options, "/api/ps", ""));
  const json::object* object = answer.if_object();
  const json::value* models = object == nullptr ? nullptr : object->if_contains("models");
  if (models == nullptr || !models->is_array()) {
    return make_error(ErrorCode::kUnavailable, "the server's answer holds no list of models");
  }
  if (options.flag("--json")) {
    std::printf("%s\n", json::serialize(answer).c_str());
    return 0;
  }
  std::printf("%-32s  %10s  %s\n", "name", "size", "until");
  for (const json::value& each : models->get_array()) {
    if (!each.is_object()) continue;
    const json::object& row = each.get_object();
    std::printf("%-32s  %10s  %s\n", shown(row, "name").c_str(), shown_size(row).c_str(),
                shown_until(row).c_str());
  }
  return 0;
}

Result<int> run_stop(const Options& options) {
  const std::string& model = options.positionals().front();
  const json::object body{{"model", model}, {"keep_alive", 0}, {"stream", false}};
  const json::value answer = TRY(ask(options, "/api/generate", json::serialize(body)));
  const json::object* said = answer.if_object();
  if (said != nullptr && shown(*said, "done_reason") == "load") {
    return make_error(ErrorCode::kUnsupported,
                      "{} stays: the server was started with it, and lets go only of models that "
                      "it loads on demand",
                      model);
  }
  if (!options.flag("--quiet")) std::fprintf(stderr, "%s is let go\n", model.c_str());
  return 0;
}

}  // namespace headrace
