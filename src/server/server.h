// Server: the engine over HTTP. Puts http, routes, session and metrics together.
//
// create() binds the socket, so port() is known; run() serves until stop() or drain() ends it. The
// engine and the bundle outlive the server. All calls are thread-safe; run() is called once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/api/bundle.h"
#include "server/api/serving_model.h"

namespace headrace {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                         // 0: any free one
  std::vector<std::string> aliases;        // further names of the model
  std::vector<std::string> api_keys;       // any of them is good; none: no key needed
  std::vector<std::string> allowed_hosts;  // see access.h; "*": any
  std::vector<std::string> cors_origins;   // "https://chat.example"; "*": any
  int num_http_threads = 2;
  int num_workers = 2;  // parse, template and tokenise; large bodies have one more of their own
  size_t max_head_bytes = 32 * 1024;
  size_t max_body_bytes = 32 * 1024 * 1024;
  // All bodies, waiting requests, answers and scores together hold at most this much.
  size_t request_memory_bytes = size_t{1} << 30;
  size_t max_stream_queue_bytes = 256 * 1024;
  int max_connections = 12'000;
  int max_connections_per_address = 512;  // 0: no limit; this machine itself has none
  std::chrono::milliseconds header_deadline{10'000};
  std::chrono::milliseconds body_deadline{120'000};
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds write_timeout{
      30'000};  // a client that reads nothing for this long is dropped
  std::chrono::milliseconds heartbeat{15'000};  // comment line on a silent stream
  std::chrono::milliseconds stall_limit{
      120'000};  // work but no step for this long: /health says 503
};

class Server {
 public:
  // kIo: the address cannot be bound, or host is none (says which and why).
  static Result<std::unique_ptr<Server>> create(Engine& engine, const TextBundle& text,
                                                ModelInfo model, const ServerOptions& options);
  virtual ~Server() = default;

  virtual int port() const = 0;
  // Serves until stop() or drain() is called from another thread.
  virtual void run() = 0;
  // Cancels what runs, closes every connection; run() returns.
  virtual void stop() = 0;
  // /ready says 503 and new work is refused at once; running responses may finish until the
  // deadline, then are cancelled; then as stop(). True if nothing had to be cancelled. Returns some
  // seconds after the deadline, if the engine and every handler at work end in time.
  virtual bool drain(std::chrono::milliseconds deadline) = 0;
};

}  // namespace headrace
