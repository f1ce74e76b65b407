// Server: models over HTTP. Puts http, routes, session and metrics together.
//
// create() binds the socket, so port() is known; run() serves until stop() or drain() ends it.
// Models that own nothing outlive the server. All calls are thread-safe; run() is called once.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "server/model_registry.h"
#include "server/server_options.h"

namespace headrace {

struct RouteRow;

class Server {
 public:
  // kIo: the address or the admin socket cannot be bound, host is none, or the files of TLS cannot
  // be used (says which and why). Errors of the laboratory's folder (lab/store.h).
  // models: at least one; the first answers requests that name none.
  static Result<std::unique_ptr<Server>> create(std::vector<ModelPtr> models,
                                                const ServerOptions& options);
  // As create, with rows beside those of route_rows() (routes.h).
  static Result<std::unique_ptr<Server>> create_with(std::span<const RouteRow> further_rows,
                                                     ServedModels models,
                                                     const ServerOptions& options);
  // A laboratory and its page alone, without a model: kInvalidArgument where the options name none.
  static Result<std::unique_ptr<Server>> create_lab(const ServerOptions& options);
  // Whether a server could listen there now, with these files of TLS: kIo, as the above.
  static Status check_places(const ServerOptions& options);
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
  // Who may ask, from the next request on. Not empty where the server began with keys, and empty
  // where it did not: whether keys are needed is decided once.
  virtual void set_api_keys(std::vector<ApiKey> keys) = 0;
  // Reads the certificate and its key again, for new connections. An error leaves all as it was.
  virtual Status reload_tls() = 0;
};

}  // namespace headrace
