#include "server/server_state.h"

#include "server/api/wall_clock.h"
#include "server/lab/lab_service.h"

namespace headrace {

ServerState::ServerState(ServedModels served, ServerOptions given, std::vector<RouteRow> routes)
    : models(std::move(served)),
      options(std::move(given)),
      rows(std::move(routes)),
      access(options),
      created(unix_seconds()),
      memory(options.request_memory_bytes),
      responses(
          std::make_shared<ResponseStore>(options.response_store_bytes, options.response_lifetime)),
      pulls(options.store_dir) {}

ServerState::~ServerState() = default;

std::string_view server_version() { return HEADRACE_VERSION; }

void respond(ServerState& /*state*/, ResponseWriter& writer, HttpResponse response) {
  writer.send(std::move(response));
}

}  // namespace headrace
