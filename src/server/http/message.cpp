#include "server/http/message.h"

#include <boost/beast/http/status.hpp>
#include <ctime>
#include <random>

#include "base/strings.h"

namespace headrace {
namespace {

namespace http = boost::beast::http;

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

void append_headers(std::string& out, const HttpHeaders& headers) {
  for (const auto& [name, value] : headers) {
    append_format(out, "{}: {}\r\n", name, value);
  }
}

void append_status(std::string& out, int status, const AnswerFrame& frame, bool keep_alive) {
  append_format(out, "HTTP/1.1 {} {}\r\nDate: {}\r\nx-request-id: {}\r\nConnection: {}\r\n", status,
                reason_phrase(status), http_date(), frame.request_id,
                keep_alive ? "keep-alive" : "close");
}

}  // namespace

bool is_good_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.' || c == ':';
    if (!good) return false;
  }
  return true;
}

std::string fresh_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

std::string render_head(const HttpResponse& response, const AnswerFrame& frame) {
  std::string out;
  append_status(out, response.status, frame, frame.keep_alive);
  if (!response.content_type.empty()) {
    append_format(out, "Content-Type: {}\r\n", response.content_type);
  }
  if (response.status != 204 && response.status != 304) {
    append_format(out, "Content-Length: {}\r\n", response.body.size());
  }
  append_headers(out, response.headers);
  append_headers(out, frame.headers);
  out += "\r\n";
  return out;
}

std::string render_stream_head(const StreamHead& head, const AnswerFrame& frame, bool chunked) {
  std::string out;
  append_status(out, 200, frame, frame.keep_alive && chunked);
  append_format(out, "Content-Type: {}\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n",
                head.content_type);
  if (chunked) out += "Transfer-Encoding: chunked\r\n";
  append_headers(out, head.headers);
  append_headers(out, frame.headers);
  out += "\r\n";
  return out;
}

}  // namespace headrace
