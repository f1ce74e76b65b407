// Handlers that load and unload adapters of a served model while it serves, as vLLM names them
// (routes_adapters.cpp).
#pragma once

#include "server/server_state.h"

namespace headrace {

// POST /v1/load_lora_adapter: {"lora_name", "lora_path", "load_inplace", "model"}, the path being
// one below ServerOptions::adapter_root; or, with ServerOptions::adapter_uploads, in its place
// {"adapter_config": the configuration, "adapter_weights": the safetensors file in base64}.
void handle_load_adapter(ServerState& state, HttpRequest& request,
                         std::shared_ptr<ResponseWriter> writer);
// The same for an operator: from any folder that this process can read, or sent.
void handle_load_any_adapter(ServerState& state, HttpRequest& request,
                             std::shared_ptr<ResponseWriter> writer);
// POST /v1/unload_lora_adapter: {"lora_name", "model"}; needs one of the two options too.
void handle_unload_adapter(ServerState& state, HttpRequest& request,
                           std::shared_ptr<ResponseWriter> writer);
void handle_unload_any_adapter(ServerState& state, HttpRequest& request,
                               std::shared_ptr<ResponseWriter> writer);

}  // namespace headrace
