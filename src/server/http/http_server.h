// HttpServer: a listening socket, its threads and its connections. All calls are thread-safe but
// start(), which is called once.
#pragma once

#include <chrono>
#include <memory>

#include "base/result.h"
#include "server/http/http.h"

namespace headrace {

class HttpServer {
 public:
  // kIo: the address cannot be bound, host is none, or the files of TLS cannot be used. Accepts
  // nothing before start().
  static Result<std::unique_ptr<HttpServer>> listen(const HttpOptions& options,
                                                    HttpService service);
  virtual ~HttpServer() = default;  // as stop with no grace
  virtual int port() const = 0;     // 0: a Unix socket
  virtual void start() = 0;         // nothing, if it was stopped before
  // Closes the listening socket and idle connections, lets answers in progress finish for at most
  // grace, closes the rest and joins every thread. Work that waits for a worker gets a 503; a
  // handler at work is waited for, so a long one asks disconnected() now and then.
  virtual void stop(std::chrono::milliseconds grace) = 0;
  virtual int num_connections() const = 0;
  // Reads the files of TLS again, for new connections. An error leaves all as it was.
  virtual Status reload_tls() = 0;
};

}  // namespace headrace
