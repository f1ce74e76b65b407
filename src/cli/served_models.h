// What `headrace serve` serves: the models of its arguments, which are loaded now and stay, and
// those of --on-demand, which requests load. All compute on one team of threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/runtime.h"
#include "server/model_registry.h"

namespace headrace {

// specs: at least one. kv_events: of the first model; tenants: of all; null, or they outlive the
// server, as the options do and `runtimes`, which gets what the models of specs are made of.
// team: null: one of their own.
// Errors as of open_engine().
Result<ServedModels> open_served_models(const Options& options,
                                        const std::vector<std::string>& specs,
                                        KvEventSink* kv_events,
                                        std::vector<std::unique_ptr<Runtime>>& runtimes,
                                        std::shared_ptr<CpuTeam> team = nullptr,
                                        const TenantBook* tenants = nullptr);

// --request-memory; without it a quarter of what is left once the models are loaded, within limits.
size_t request_memory(const Options& options);

// The name requests use: a pulled model's name as given, a path's last part without .gguf or
// .safetensors.
std::string served_name(const std::string& spec);

// A model that --on-demand names.
struct FoundModel {
  std::string name;
  std::string path;
  size_t num_bytes = 0;
};
// Of the elements of the option: names and paths of models, folders that hold models, and "store"
// for all that are pulled. kNotFound names the element.
Result<std::vector<FoundModel>> find_on_demand(const Options& options);

}  // namespace headrace
