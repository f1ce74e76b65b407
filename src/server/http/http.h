// http: connections, requests and responses. The only folder that knows sockets, and it knows
// nothing of what is served: routes, JSON and the form of errors are the service's.
//
// Few I/O threads carry all connections as coroutines. A request without a body is handled on the
// I/O thread; one with a body on a worker, and one with a large body on a worker for those alone,
// so that no small request waits behind it; workers take turns between clients. Limits on head,
// body, framing, memory, time and queued output hold for every connection. Sources: RFC 9112
// (HTTP/1.1), RFC 9110, WHATWG HTML section 9.2 (server-sent events).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_budget.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/result.h"
#include "server/http/tls.h"

namespace headrace {

struct RouteRow;  // of the service; opaque here

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent
  std::string body;
  std::string request_id;           // the client's x-request-id, or a fresh one
  HttpHeaders headers;              // names in lower case
  uint64_t client = 0;              // who asks: a digest of the API key, or the address without one
  std::string key_name;             // of the API key; empty: none, or one without a name
  std::string cache_group;          // of the API key: who shares its part of the prefix cache
  TimeUs arrived_us = 0;            // when its first byte came in
  ByteBudget::Lease memory = {};    // what it holds of the server's budget for bodies and answers
  const RouteRow* route = nullptr;  // found when it was admitted
  std::string_view header(std::string_view lower_case_name) const;  // empty if absent
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
  ByteBudget::Lease memory = {};  // of the budget: held until the last byte is sent
};

// How an answer in parts begins; its status is 200.
struct StreamHead {
  std::string content_type;
  HttpHeaders headers = {};
  // Sent where the stream is silent for long; the client skips it. Empty: nothing is sent, and a
  // client that sends no more is found out only by the next part.
  std::string heartbeat = {};
};

// What the log of requests says of an answer beyond what the connection sees itself. Never text of
// a prompt or an answer, never a key. A negative number or an empty text: not known, left out.
struct RequestNote {
  std::string model;                 // that answers
  std::string answer_id;             // "chatcmpl-..."
  std::string finish;                // how it ended: "stop", "length", "error", "cancelled"
  int64_t prompt_tokens = -1;        // all prompts together
  int64_t cached_tokens = -1;        // of these, found in the prefix cache
  int64_t output_tokens = -1;        // all choices together
  int64_t queue_us = -1;             // from submission to the first step
  int64_t first_token_us = -1;       // from the request's first byte to the first token
  std::string_view cache_miss = {};  // why not all was found there (cache_miss.h); a literal
};

// Where one request's answer goes: either send() once, or start_stream(), write()*, end_stream().
// All calls are thread-safe and return at once. Dropping the last reference without an answer gives
// the client a 500 (or a broken stream): no request is left hanging. No writer outlives its server.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void send(HttpResponse response) = 0;
  virtual void start_stream(StreamHead head) = 0;
  virtual void write(std::string_view data) = 0;  // queued; dropped if the client is gone
  virtual void end_stream() = 0;
  virtual size_t queued_bytes() const = 0;  // not yet taken by the network
  // Nobody will read the answer: the client has left, or the server is closing. Long work on an
  // I/O or worker thread asks this now and then, and ends.
  virtual bool disconnected() const = 0;
  // For the log line, before the answer is complete; a later note replaces an earlier one.
  virtual void note(RequestNote /*note*/) {}
  // Called once, on an I/O thread, if the client leaves before the answer is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  // Called on an I/O thread whenever a write has completed.
  virtual void on_written(std::function<void()> callback) = 0;
  // Runs the task on an I/O thread, one at a time for this connection, in order.
  virtual void post(std::function<void()> task) = 0;
};

// What is decided when a request's head is there, before its body is read.
struct Admission {
  std::optional<HttpResponse> refusal = {};
  HttpHeaders headers = {};          // of every answer to this request
  std::string_view route_path = {};  // for the log; empty: no route
  bool is_public = false;            // for the log: anyone may ask
};

// One request that has ended, for the log.
struct RequestRecord {
  std::string method, path;  // what the client sent: escape before printing; empty: not read
  std::string_view route;    // the path of its row; empty: none
  std::string request_id, peer;
  std::string key_name;      // HttpRequest::key_name
  uint64_t client = 0;       // HttpRequest::client
  std::string trace_parent;  // the client's traceparent header, as sent
  bool is_public = false;    // anyone may ask: of little interest where it went well
  int status = 0;            // 0: the client left before there was an answer
  enum class Ending : uint8_t { kWhole, kClientLeft, kDropped } ending = Ending::kWhole;
  size_t body_bytes = 0, sent_bytes = 0;
  TimeUs total_us = 0;  // from its first byte to the end
  RequestNote note;
};

// Counted by the connections, before the answer is sent.
struct HttpCounters {
  Counter requests;             // whose first byte came in
  Counter errors;               // answered with a status of 400 or more
  Counter refused_connections;  // over the limit of all, or of their address
  Counter refused_memory;       // bodies for which the budget had no room
  Counter refused_access;       // statuses 401 and 403
  Counter failed_handshakes;    // connections that never got as far as a request, by TLS
};

// What a server does with requests. Everything pointed to outlives it; functions must not throw.
struct HttpService {
  // Answers the request now or later.
  std::function<void(HttpRequest&&, std::shared_ptr<ResponseWriter>)> handle;
  // On the I/O thread, once the head is there. May set client and route. None: all are admitted.
  std::function<Admission(HttpRequest&)> admit = {};
  // Any thread: the answer to what ends without its handler's (408, 413, 500, 503), in the form
  // that the route's clients read; null: no route is known. None: the message as plain text.
  std::function<HttpResponse(const RouteRow* route, int status, std::string_view message)> fail =
      {};
  std::function<void(const RequestRecord&)> finished = {};  // on the I/O thread
  ByteBudget* memory = nullptr;                             // of bodies; null: not bounded
  HttpCounters* counters = nullptr;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  // In place of host and port: a Unix socket, which this user alone and root can open.
  std::string unix_path = {};
  TlsFiles tls = {};
  int num_threads = 2;
  int num_workers = 2;         // for bodies up to 64 KiB; larger ones have one of their own
  int max_queued_work = 1024;  // requests waiting for a worker; more get a 503
  size_t max_head_bytes = 32 * 1024;
  size_t max_target_bytes = 8 * 1024;
  int max_headers = 100;
  size_t max_body_bytes = 32 * 1024 * 1024;
  int max_connections = 12'000;
  int max_connections_per_address = 512;  // 0: no limit. An IPv6 network of 64 bits is one address
  bool count_loopback = false;            // does that limit hold for this machine itself?
  std::chrono::milliseconds header_deadline{10'000};
  std::chrono::milliseconds body_grace{5'000};  // then 1 KiB/s, at most two graces saved up
  std::chrono::milliseconds body_deadline{120'000};
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds write_timeout{
      30'000};  // in which a client takes 1 KiB/s, or is dropped
  std::chrono::milliseconds heartbeat{5'000};
  std::chrono::milliseconds probe_after{2'000};  // see Connection: clients that send no more
};

}  // namespace headrace
