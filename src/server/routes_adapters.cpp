#include "server/adapter_handlers.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <mutex>

#include "base/log.h"
#include "checkpoint/adapter_upload.h"
#include "server/api/api_fields.h"
#include "server/api/base64.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/routes.h"

namespace headrace {
namespace {

struct AdapterCall {
  ModelPtr model;
  std::string name;
  std::string path;                             // empty: it was sent
  std::shared_ptr<const AdapterUpload> upload;  // null: there is a path
  bool replace = false;
  IgnoredFields ignored;

  std::string source() const { return upload == nullptr ? path : "sent by a client"; }
};

Result<std::string> needed_text(const Fields& fields, std::string_view name) {
  const auto text = TRY(fields.text(name));
  if (!text || text->empty()) return bad_field(name, "missing", "a string");
  return std::string(*text);
}

// The one that the call names, else the one that has the adapter, else the first.
Result<ModelPtr> model_of(ServerState& state, const Fields& fields, const std::string& adapter) {
  const auto given = TRY(fields.text("model"));
  if (given && !given->empty()) return state.models.find(*given);
  return state.models.find(state.models.owner_of_adapter(adapter));
}

// What is sent in the place of a path.
Result<std::shared_ptr<const AdapterUpload>> read_upload(const Fields& fields) {
  constexpr const char* kConfig = "adapter_config";
  constexpr const char* kWeights = "adapter_weights";
  const boost::json::object* config = TRY(fields.object(kConfig));
  const auto weights = TRY(fields.text(kWeights));
  if (config == nullptr && !weights) return std::shared_ptr<const AdapterUpload>();
  if (config == nullptr) return bad_field(kConfig, "missing", "an object beside adapter_weights");
  if (!weights) return bad_field(kWeights, "missing", "base64 beside adapter_config");
  auto bytes = bytes_of_base64(*weights);
  if (!bytes.ok()) return bad_field(kWeights, bytes.error().message, "base64");
  std::error_code ignored;
  const auto folder = std::filesystem::temp_directory_path(ignored);
  return AdapterUpload::keep(folder.string(), boost::json::serialize(*config), *bytes);
}

Result<AdapterCall> read_call(ServerState& state, const HttpRequest& request, FieldPlace place) {
  const boost::json::object body = TRY(body_object(request));
  AdapterCall call;
  TRY(check_fields(body, place, "", call.ignored));
  const Fields fields(body);
  call.name = TRY(needed_text(fields, "lora_name"));
  call.model = TRY(model_of(state, fields, call.name));
  if (place == kInUnloadAdapter) return call;
  call.replace = TRY(fields.boolean("load_inplace")).value_or(false);
  call.upload = TRY(read_upload(fields));
  if (call.upload == nullptr) {
    call.path = TRY(needed_text(fields, "lora_path"));
  } else if (TRY(fields.text("lora_path"))) {
    return bad_field("lora_path", "given", "left out where the adapter is sent");
  }
  return call;
}

Error not_opened(std::string_view what, std::string_view option) {
  Error error = make_error(ErrorCode::kUnsupported, "this server {} while it serves", what);
  error.hint = fmt::format("start it with {}", option);
  return error;
}

// Over the network adapters change only where whoever started the server said so.
Status check_opened(const ServerState& state) {
  if (!state.options.adapter_root.empty() || state.options.adapter_uploads) return {};
  return not_opened("changes no adapters", "--adapter-root or --adapter-uploads");
}

Status check_opened(const ServerState& state, const AdapterCall& call) {
  if (call.upload != nullptr && !state.options.adapter_uploads) {
    return not_opened("takes no adapters that are sent", "--adapter-uploads");
  }
  if (call.upload == nullptr && state.options.adapter_root.empty()) {
    return not_opened("loads no adapters from folders", "--adapter-root");
  }
  return {};
}

// Requests ask for models and adapters by names alone: each means one of them.
Status check_name(const ServerState& state, const AdapterCall& call) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const ModelStatus& model : state.models.status()) {
    if (has(model.names, call.name))
      return bad_field("lora_name", "the name of a model", "another name");
  }
  const std::string owner = state.models.owner_of_adapter(call.name);
  if (owner.empty() || has(call.model->names, owner)) return {};
  return bad_field("lora_name", fmt::format("the name of an adapter of '{}'", owner),
                   "another name");
}

// read: of a path. The answer says what may be wrong about the adapter.
Result<std::string> load_adapter(ServerState& state, const AdapterCall& call,
                                 AdapterRegistry::Read read) {
  const std::unique_lock naming(state.adapter_names, std::try_to_lock);
  if (!naming.owns_lock())
    return make_error(ErrorCode::kUnavailable, "another adapter is being loaded");
  TRY(check_name(state, call));
  if (call.upload != nullptr) read = [upload = call.upload] { return upload->read(); };
  const ServedModel& model = *call.model;
  const auto adapter = TRY(model.adapters.load(call.name, call.source(), call.replace, read));
  const std::string warning = base_model_warning(adapter->base_model, model.names);
  if (!warning.empty()) LOG(kWarning, "adapter '{}': {}", call.name, warning);
  return warning.empty() ? "" : " Warning: " + warning + ".";
}

// done: what is to be said besides.
void answer_call(ServerState& state, const HttpRequest& request, ResponseWriter& writer,
                 const Result<std::string>& done, const AdapterCall& call, std::string_view verb) {
  if (!done.ok()) {
    Error error = done.error();
    if (error.param.empty()) error.param = "lora_name";
    return writer.send(error_response(dialect_of(request.route), error));
  }
  HttpResponse response{
      200, fmt::format("Success: LoRA adapter '{}' {} successfully.{}", call.name, verb, *done),
      "text/plain; charset=utf-8"};
  name_ignored(call.ignored, response.headers);
  respond(state, writer, std::move(response));
}

}  // namespace

void handle_load_adapter(ServerState& state, HttpRequest& request,
                         std::shared_ptr<ResponseWriter> writer) {
  Status opened = check_opened(state);
  if (!opened.ok()) return refuse(request, *writer, opened.error());
  const auto call = read_call(state, request, kInLoadAdapter);
  if (!call.ok()) return refuse(request, *writer, call.error());
  opened = check_opened(state, *call);
  if (!opened.ok()) return refuse(request, *writer, opened.error());
  const auto done =
      load_adapter(state, *call, [root = state.options.adapter_root, path = call->path] {
        return read_adapter_folder_under(root, path);
      });
  answer_call(state, request, *writer, done, *call, "added");
}

void handle_load_any_adapter(ServerState& state, HttpRequest& request,
                             std::shared_ptr<ResponseWriter> writer) {
  const auto call = read_call(state, request, kInLoadAdapter);
  if (!call.ok()) return refuse(request, *writer, call.error());
  const auto done =
      load_adapter(state, *call, [path = call->path] { return read_adapter_folder(path); });
  answer_call(state, request, *writer, done, *call, "added");
}

void handle_unload_adapter(ServerState& state, HttpRequest& request,
                           std::shared_ptr<ResponseWriter> writer) {
  const Status opened = check_opened(state);
  if (!opened.ok()) return refuse(request, *writer, opened.error());
  handle_unload_any_adapter(state, request, std::move(writer));
}

void handle_unload_any_adapter(ServerState& state, HttpRequest& request,
                               std::shared_ptr<ResponseWriter> writer) {
  const auto call = read_call(state, request, kInUnloadAdapter);
  if (!call.ok()) return refuse(request, *writer, call.error());
  const Status gone = call->model->adapters.unload(call->name);
  const Result<std::string> done = gone.ok() ? Result<std::string>("") : gone.error();
  answer_call(state, request, *writer, done, *call, "removed");
}

}  // namespace headrace
