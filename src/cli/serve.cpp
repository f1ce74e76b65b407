// headrace serve MODEL...: what a server is made of, in order: checkpoint, text, back end, model,
// engine, server.

#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <thread>

#include "base/log.h"
#include "base/memory_shortage.h"
#include "base/strings.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/runtime.h"
#include "cli/serve_operation.h"
#include "cli/served_models.h"
#include "cli/start_signals.h"
#include "cli/tenants_file.h"
#include "cli/terminal.h"
#include "engine/tiers/store_folder.h"
#include "server/server.h"

namespace headrace {
namespace {

// With --kv-disk what a key has computed is found again by that key after a restart.
Result<std::string> client_secret(const Options& options) {
  const std::string& folder = options.text("--kv-disk");
  if (folder.empty()) return make_client_secret();
  KeyedDigest digest(TRY(StoreFolder::key_of(folder)));
  digest.add_text("numbers of clients");
  const Digest secret = digest.finish();
  return std::string(reinterpret_cast<const char*>(&secret), sizeof(secret));
}

Result<ServerOptions> server_options(const Options& options) {
  ServerOptions serve = TRY(network_options(options));
  serve.admin_socket = options.text("--admin-socket");
  serve.client_secret = TRY(client_secret(options));
  serve.adapter_root = options.text("--adapter-root");
  serve.adapter_uploads = options.flag("--adapter-uploads");
  if (options.is_set("--lab")) serve.lab_folder = options.text("--lab");
  serve.response_store_bytes = options.bytes("--response-store");
  serve.response_lifetime = std::chrono::seconds(options.integer("--response-seconds"));
  return serve;
}

// An element of --adapter: NAME=FOLDER, or NAME@MODEL=FOLDER.
struct AdapterArgument {
  std::string name, model, folder;  // model: empty for the first
};

bool has_name(const ServedModel& model, std::string_view name) {
  return name.empty() || std::ranges::find(model.names, name) != model.names.end();
}

Result<AdapterArgument> split_adapter_argument(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == text.npos) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--adapter is '{}', but must be NAME=FOLDER or NAME@MODEL=FOLDER", text);
  }
  AdapterArgument argument{text.substr(0, equals), {}, text.substr(equals + 1)};
  const size_t at = argument.name.rfind('@');
  if (at == argument.name.npos) return argument;
  argument.model = argument.name.substr(at + 1);
  argument.name.resize(at);
  return argument;
}

Result<AdapterArgument> adapter_argument(const std::string& text, const ServedModels& models) {
  AdapterArgument argument = TRY(split_adapter_argument(text));
  const std::string& model = argument.model;
  if (model.empty()) return argument;
  const bool known =
      std::ranges::any_of(models.always,
                          [&](const ModelPtr& each) { return has_name(*each, model); }) ||
      std::ranges::find(models.on_demand, model, &ModelSource::name) != models.on_demand.end();
  if (!known) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--adapter is '{}', but no model called '{}' is served", text, model);
  }
  return argument;
}

// What can be told of --adapter before the models are there, which may take minutes.
Status check_adapters(const Options& options) {
  for (const std::string& text : list_of(options, "--adapter")) {
    TRY(read_adapter_folder(TRY(split_adapter_argument(text)).folder));
  }
  return {};
}

// What requests can ask for without adapters.
std::set<std::string> names_of(const ServedModels& models) {
  std::set<std::string> names;
  for (const ModelPtr& model : models.always)
    names.insert(model->names.begin(), model->names.end());
  for (const ModelSource& source : models.on_demand) {
    names.insert(source.name);
    names.insert(source.aliases.begin(), source.aliases.end());
  }
  return names;
}

Status load_now(const AdapterArgument& argument, const ServedModel& model) {
  const auto read = [folder = argument.folder] { return read_adapter_folder(folder); };
  const auto adapter = TRY(model.adapters.load(argument.name, argument.folder, false, read));
  const std::string warning = base_model_warning(adapter->base_model, model.names);
  if (!warning.empty()) LOG(kWarning, "adapter '{}': {}", argument.name, warning);
  return {};
}

// --adapter: those that are there from the start; of models that are loaded later, from then on.
Status load_adapters(const Options& options, ServedModels& models) {
  std::set<std::string> names = names_of(models);
  for (const std::string& text : list_of(options, "--adapter")) {
    const AdapterArgument argument = TRY(adapter_argument(text, models));
    if (!names.insert(argument.name).second) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--adapter is '{}', but a model or another adapter is called '{}'", text,
                        argument.name);
    }
    const auto always = std::ranges::find_if(
        models.always, [&](const ModelPtr& model) { return has_name(*model, argument.model); });
    if (always != models.always.end()) {
      TRY(load_now(argument, **always));
      continue;
    }
    const auto source = std::ranges::find(models.on_demand, argument.model, &ModelSource::name);
    source->adapters.push_back({argument.name, argument.folder, [folder = argument.folder] {
                                  return read_adapter_folder(folder);
                                }});
  }
  return {};
}

}  // namespace

Result<int> run_serve(const Options& options) {
  begin_log(options);
  ServerOptions serve = TRY(server_options(options));
  TRY(Server::check_places(serve));  // models may take minutes to load
  ServedTenants tenants(serve.client_secret);
  TRY(tenants.read(options.text("--tenants"), serve.api_keys));
  tenants.mark(&serve.api_keys);
  TRY(check_adapters(options));
  const HangUp hang_up;
  StartSignals start_signals(hang_up, can_reload(options));

  const std::vector<std::string> specs = TRY(take_models(options));
  const Telemetry telemetry = TRY(open_telemetry(options));
  std::vector<std::unique_ptr<Runtime>> runtimes;  // outlive the server
  ServedModels models = TRY(open_served_models(options, specs, telemetry.kv_events.get(), runtimes,
                                               nullptr, &tenants.book()));

  serve.kv_events = telemetry.kv_events.get();
  serve.traces = telemetry.traces.get();
  serve.request_memory_bytes = request_memory(options);
  TRY(load_adapters(options, models));
  start_signals.hand_over();
  const auto server = TRY(Server::create_with({}, std::move(models), serve));
  end_of_start();
  tell_address(serve, server->port());
  for (const auto& runtime : runtimes) runtime->text.grammars->prepare();
  run_until_stopped(*server, options, &tenants, hang_up);
  return 0;
}

}  // namespace headrace
