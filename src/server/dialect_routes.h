// dialect_routes: the rows of the dialects beside the first, and what the routes that several
// dialects share say in theirs.
#pragma once

#include <span>
#include <string>

#include "server/server_state.h"

namespace headrace {

std::span<const RouteRow> anthropic_rows();
std::span<const RouteRow> ollama_rows();
std::span<const RouteRow> llamacpp_rows();

// Does a client of Anthropic's ask? Its header says so.
bool is_anthropic(const HttpRequest& request);
// The answers of /v1/models and /v1/models/NAME to it.
HttpResponse anthropic_models(const ServerState& state);
HttpResponse anthropic_model(const ServerState& state, const ServedModel& model,
                             const std::string& name);

// Does a client of Ollama's ask at "/" whether it is there? It accepts JSON, and no page.
bool is_ollama_probe(const HttpRequest& request);
HttpResponse ollama_greeting();

}  // namespace headrace
