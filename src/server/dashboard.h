// dashboard: the web page's files and the figures that it shows.
#pragma once

#include <memory>
#include <string>

#include "server/http/http.h"
#include "server/server_state.h"

namespace headrace {

// A file of the pages; 404 for a path that is not in the table of embedded assets.
void handle_asset(ServerState& state, HttpRequest& request, std::shared_ptr<ResponseWriter> writer);
std::string status_json(ServerState& state);  // there is a model
// GET /api/headrace/status: model, engine, versions and the newest steps, as JSON. The page's own
// notes say which fields it reads.
void handle_status(ServerState& state, HttpRequest& request,
                   std::shared_ptr<ResponseWriter> writer);

}  // namespace headrace
