#include "server/http_message.h"

#include <ctime>
#include <optional>
#include <random>

namespace headrace {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::error_code;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view reason_phrase(int status) {
  const std::string_view known = http::obsolete_reason(static_cast<http::status>(status));
  return known.empty() ? std::string_view("Unknown") : known;
}

// "Sat, 21 Nov 2026 10:00:00 GMT"
std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

bool is_good_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.' || c == ':';
    if (!good) return false;
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Error bad_request(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), {}, {}};
}

void append_headers(std::string& out, const HttpHeaders& headers) {
  for (const auto& [name, value] : headers) {
    fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  }
}

}  // namespace

std::string fresh_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

int status_of_read_error(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  if (error.category() == http::make_error_code(http::error::bad_method).category()) return 400;
  return 0;
}

HttpResponse response_to_read_error(int status, const error_code& error,
                                    const HttpOptions& options) {
  if (status == 431) {
    return error_response(status,
                          fmt::format("the request line and headers are longer than {} bytes",
                                      options.max_head_bytes));
  }
  if (status == 413) {
    return error_response(status,
                          fmt::format("the body is longer than {} bytes", options.max_body_bytes));
  }
  return error_response(status,
                        fmt::format("this is not a valid HTTP/1.1 request: {}", error.message()));
}

void configure(HttpParser& parser, const HttpOptions& options) {
  parser.header_limit(static_cast<std::uint32_t>(options.max_head_bytes));
  parser.body_limit(options.max_body_bytes);
}

Status check_head(const HttpParser& parser, const HttpOptions& options) {
  const auto& head = parser.get();
  const std::string_view target = head.target();
  if (target.size() > options.max_target_bytes) {
    return make_error(ErrorCode::kExhausted, "the request target is longer than {} bytes",
                      options.max_target_bytes);
  }
  if (target != "*" && !target.starts_with('/')) {
    return bad_request("the request target must begin with '/'");
  }
  if (head.version() >= 11 && head.count(http::field::host) != 1) {
    return bad_request("exactly one Host header is needed");
  }
  if (std::distance(head.begin(), head.end()) > options.max_headers) {
    return make_error(ErrorCode::kExhausted, "more than {} headers", options.max_headers);
  }
  return {};
}

int status_of_head_error(const Error& error) {
  if (error.code != ErrorCode::kExhausted) return 400;
  return error.message.starts_with("the request target") ? 414 : 431;
}

Result<HttpRequest> to_request(HttpParser&& parser) {
  HttpRequest request;
  auto message = parser.release();
  request.method = std::string(message.method_string());
  const std::string_view target = message.target();
  const size_t question = target.find('?');
  auto path = percent_decode(target.substr(0, question));
  if (!path) return bad_request("the request target has a broken percent escape");
  request.path = std::move(*path);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    request.headers.emplace_back(lower(std::string_view(field.name_string())),
                                 std::string(std::string_view(field.value())));
  }
  request.body = std::move(message.body());
  const std::string_view id = request.header("x-request-id");
  request.request_id = is_good_request_id(id) ? std::string(id) : fresh_request_id();
  return request;
}

std::string render_response(const HttpResponse& response, const std::string& request_id,
                            bool keep_alive, bool head_only) {
  std::string out = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {}\r\nx-request-id: {}\r\nConnection: {}\r\n", response.status,
      reason_phrase(response.status), http_date(), request_id, keep_alive ? "keep-alive" : "close");
  if (!response.content_type.empty()) {
    fmt::format_to(std::back_inserter(out), "Content-Type: {}\r\n", response.content_type);
  }
  if (response.status != 204 && response.status != 304) {
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", response.body.size());
  }
  append_headers(out, response.headers);
  out += "\r\n";
  if (!head_only) out += response.body;
  return out;
}

std::string render_stream_head(const HttpHeaders& headers, const std::string& request_id,
                               bool keep_alive, bool chunked) {
  std::string out = fmt::format(
      "HTTP/1.1 200 OK\r\nDate: {}\r\nx-request-id: {}\r\nConnection: {}\r\n"
      "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\n",
      http_date(), request_id, keep_alive && chunked ? "keep-alive" : "close");
  if (chunked) out += "Transfer-Encoding: chunked\r\n";
  append_headers(out, headers);
  out += "\r\n";
  return out;
}

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

Result<HttpRequest> parse_request(std::string_view bytes, const HttpOptions& options) {
  HttpParser parser;
  configure(parser, options);
  parser.eager(true);
  error_code error;
  while (!bytes.empty() && !parser.is_done()) {
    const bool had_head = parser.is_header_done();
    const size_t used = parser.put(asio::buffer(bytes.data(), bytes.size()), error);
    if (error) break;
    bytes.remove_prefix(used);
    if (!had_head && parser.is_header_done()) TRY(check_head(parser, options));
    if (used == 0) break;
  }
  if (error == http::error::need_more || (!error && !parser.is_done())) {
    return bad_request("the request is incomplete");
  }
  if (error) {
    const int status = status_of_read_error(error);
    return Error{
        status == 431 || status == 413 ? ErrorCode::kExhausted : ErrorCode::kInvalidArgument,
        error.message(),
        {},
        {}};
  }
  return to_request(std::move(parser));
}

}  // namespace headrace
