// LocalServer: a server for the process that it is in: no sockets, but the routes, dialects,
// sessions and models of Server (server.h). A request is a method, a path and a body as on the
// wire, so all of it means the same there and here, and its answer has the same bits.
//
// Whoever asks takes the answer in pieces, whenever it wants: nothing is paused and nobody is
// dropped for reading slowly. All calls are thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/http.h"
#include "server/model_registry.h"
#include "server/server_options.h"

namespace headrace {

// One answer, whole or a stream. May outlive its server. When the last reference goes before the
// answer has ended, its request is cancelled.
class LocalAnswer {
 public:
  struct Piece {
    int status = 0;            // 0: nothing is known yet
    HttpHeaders headers = {};  // of the answer and content-type, with every piece
    std::string data = {};     // what came since the last piece
    bool ended = false;        // this was the last
    bool broken = false;       // a stream ended before its time
  };

  virtual ~LocalAnswer() = default;
  // Until there is something to take, the answer has ended, or the time has passed: then false.
  virtual bool wait(std::chrono::milliseconds limit) = 0;
  virtual Piece take() = 0;
  // Readable while wait() would return true at once. Owned by the answer; negative: the system has
  // none left.
  virtual int descriptor() = 0;
  // The answer has ended, with what there was; its request is cancelled.
  virtual void cancel() = 0;
};

class LocalServer {
 public:
  // models: at least one, as for Server::create_with. Of the options what concerns connections
  // means nothing here.
  static std::unique_ptr<LocalServer> create(ServedModels models, const ServerOptions& options);
  virtual ~LocalServer() = default;  // stops

  // method: "POST"; path: of a route, "/v1/completions". Returns at once. After stop() the answer
  // is a 503.
  virtual std::shared_ptr<LocalAnswer> ask(std::string_view method, std::string_view path,
                                           std::string body) = 0;
  // Cancels what runs, whose answers end with an error, and waits for that.
  virtual void stop() = 0;
};

}  // namespace headrace
