// What tests of the whole server share: it runs over a scripted engine.
#pragma once

#include <memory>
#include <thread>

#include "server/api/test_support.h"
#include "server/http/test_support.h"
#include "server/server.h"

namespace headrace::test {

// A server over a scripted engine, running on a thread of its own.
class RunningServer {
 public:
  // rows: further ones; aliases: of the model.
  explicit RunningServer(Script script = {}, ServerOptions options = {}, bool with_template = true,
                         std::span<const RouteRow> rows = {}, std::vector<std::string> aliases = {})
      : bundle_(make_bundle(with_template)), engine_(std::move(script)) {
    options.port = 0;
    auto model =
        std::make_shared<ServedModel>(engine_, bundle_, make_model_info(), std::move(aliases));
    auto created = Server::create_with(rows, ServedModels{{std::move(model)}}, options);
    CHECK(created.ok(), "{}", created.error().message);
    server_ = std::move(created).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~RunningServer() {
    server_->stop();
    thread_.join();
  }
  int port() const { return server_->port(); }
  Server& server() { return *server_; }
  ScriptedEngine& engine() { return engine_; }

 private:
  TextBundle bundle_;
  ScriptedEngine engine_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace headrace::test
