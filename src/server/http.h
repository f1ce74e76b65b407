// http: connections, requests and responses. The only part that knows sockets (http.cpp).
//
// Few I/O threads carry all connections as coroutines. A request without a body is handled on the
// I/O thread; one with a body on a small worker pool, so that parsing and tokenising a large body
// delays nobody else. Limits on head, body, time and queued output hold for every connection.
// Sources: RFC 9112 (HTTP/1.1), WHATWG HTML section 9.2 (server-sent events).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headrace {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent
  std::string body;
  std::string request_id;  // the client's x-request-id, or a fresh one
  HttpHeaders headers;     // names in lower case
  std::string_view header(std::string_view lower_case_name) const;  // empty if absent
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// Where one request's answer goes: either send() once, or start_stream(), write()*, end_stream().
// All calls are thread-safe and return at once. Dropping the last reference without an answer gives
// the client a 500 (or a broken stream): no request is left hanging. No writer outlives its server.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void send(HttpResponse response) = 0;
  virtual void start_stream(HttpHeaders headers) = 0;  // 200, text/event-stream
  virtual void write(std::string_view data) = 0;       // queued; dropped if the client is gone
  virtual void end_stream() = 0;
  virtual size_t queued_bytes() const = 0;  // not yet taken by the network
  virtual bool disconnected() const = 0;
  // Called once, on an I/O thread, if the client leaves before the answer is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  // Called on an I/O thread whenever a write has completed.
  virtual void on_written(std::function<void()> callback) = 0;
  // Runs the task on an I/O thread, one at a time for this connection, in order.
  virtual void post(std::function<void()> task) = 0;
};

// Answers the request now or later. Must not throw.
using HttpHandler = std::function<void(HttpRequest&&, std::shared_ptr<ResponseWriter>)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  int num_threads = 2;
  int num_workers = 2;
  int max_queued_work = 1024;  // requests waiting for a worker; more get a 503
  size_t max_head_bytes = 32 * 1024;
  size_t max_target_bytes = 8 * 1024;
  int max_headers = 100;
  size_t max_body_bytes = 32 * 1024 * 1024;
  int max_connections = 12'000;
  std::chrono::milliseconds header_deadline{10'000};
  std::chrono::milliseconds body_grace{5'000};  // then at least 1 KiB/s
  std::chrono::milliseconds body_deadline{120'000};
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds write_timeout{30'000};
  std::chrono::milliseconds heartbeat{15'000};
};

class HttpServer {
 public:
  // kIo or kInvalidArgument when the address cannot be bound. Accepts nothing before start().
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options,
                                                    HttpHandler handler);
  virtual ~HttpServer() = default;  // as stop with no grace
  virtual int port() const = 0;
  virtual void start() = 0;
  // Closes the listening socket and idle connections, lets answers in progress finish for at most
  // grace, closes the rest and joins every thread. Work that was queued is dropped.
  virtual void stop(std::chrono::milliseconds grace) = 0;
  virtual int num_connections() const = 0;
};

// One whole request from memory, under the same limits and checks as on a connection.
// kInvalidArgument: malformed; kExhausted: over a limit.
Result<HttpRequest> parse_request(std::string_view bytes, const HttpOptions& options);

// {"error":{"message","type","param","code"}}: the body of every answer that is not a success.
std::string error_body(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
HttpResponse error_response(int status, std::string_view message, std::string_view param = {},
                            std::string_view code = {});
// The status that stands for an error's code (base/result.h), with Retry-After where it helps.
int status_of(ErrorCode code);
HttpResponse error_response(const Error& error);

}  // namespace headrace
