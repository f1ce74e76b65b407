#include "server/server_state.h"

#include <chrono>

namespace headrace {
namespace {

int64_t wall_clock_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::vector<std::string> all_names(const ModelInfo& model, const ServerOptions& options) {
  std::vector<std::string> names{model.name};
  names.insert(names.end(), options.aliases.begin(), options.aliases.end());
  return names;
}

}  // namespace

ServerState::ServerState(Engine& serving_engine, const TextBundle& bundle, ModelInfo info,
                         ServerOptions given, std::vector<RouteRow> routes)
    : engine(serving_engine),
      text(bundle),
      model(std::move(info)),
      options(std::move(given)),
      rows(std::move(routes)),
      names(all_names(model, options)),
      serving{text, model, names, engine.max_context()},
      access(options),
      created(wall_clock_seconds()),
      memory(options.request_memory_bytes) {}

std::string_view server_version() { return HEADRACE_VERSION; }

void respond(ServerState& /*state*/, ResponseWriter& writer, HttpResponse response) {
  writer.send(std::move(response));
}

}  // namespace headrace
