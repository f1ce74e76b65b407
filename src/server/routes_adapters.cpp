#include "server/adapter_handlers.h"

#include <algorithm>

#include "server/api/api_fields.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/routes.h"

namespace headrace {
namespace {

struct AdapterCall {
  ModelPtr model;
  std::string name;
  std::string path;
  bool replace = false;
  IgnoredFields ignored;
};

Result<std::string> needed_text(const Fields& fields, std::string_view name) {
  const auto text = TRY(fields.text(name));
  if (!text || text->empty()) return bad_field(name, "missing", "a string");
  return std::string(*text);
}

Result<AdapterCall> read_call(ServerState& state, const HttpRequest& request, FieldPlace place) {
  const boost::json::object body = TRY(body_object(request));
  AdapterCall call;
  TRY(check_fields(body, place, "", call.ignored));
  const Fields fields(body);
  call.model = TRY(state.models.find_for(body));
  call.name = TRY(needed_text(fields, "lora_name"));
  if (place == kInUnloadAdapter) return call;
  call.path = TRY(needed_text(fields, "lora_path"));
  call.replace = TRY(fields.boolean("load_inplace")).value_or(false);
  return call;
}

// Over the network adapters change only where whoever started the server said so.
Status check_opened(const ServerState& state) {
  if (!state.options.adapter_root.empty()) return {};
  Error error =
      make_error(ErrorCode::kUnsupported, "this server changes no adapters while it serves");
  error.hint = "start it with --adapter-root";
  return error;
}

Status load_adapter(const ServerState& state, const AdapterCall& call,
                    const AdapterRegistry::Read& read) {
  for (const ModelStatus& model : state.models.status()) {
    if (std::find(model.names.begin(), model.names.end(), call.name) == model.names.end()) continue;
    return bad_field("lora_name", "the name of a model", "another name");
  }
  return call.model->adapters.load(call.name, call.path, call.replace, read);
}

void answer_call(ServerState& state, const HttpRequest& request, ResponseWriter& writer,
                 const Status& status, const AdapterCall& call, std::string_view done) {
  if (!status.ok()) {
    Error error = status.error();
    if (error.param.empty()) error.param = "lora_name";
    return writer.send(error_response(dialect_of(request.route), error));
  }
  HttpResponse response{200,
                        fmt::format("Success: LoRA adapter '{}' {} successfully.", call.name, done),
                        "text/plain; charset=utf-8"};
  name_ignored(call.ignored, response.headers);
  respond(state, writer, std::move(response));
}

}  // namespace

void handle_load_adapter(ServerState& state, HttpRequest& request,
                         std::shared_ptr<ResponseWriter> writer) {
  const Status opened = check_opened(state);
  if (!opened.ok()) return refuse(request, *writer, opened.error());
  const auto call = read_call(state, request, kInLoadAdapter);
  if (!call.ok()) return refuse(request, *writer, call.error());
  const Status status = load_adapter(state, call.value(), [&] {
    return read_adapter_folder_under(state.options.adapter_root, call->path);
  });
  answer_call(state, request, *writer, status, call.value(), "added");
}

void handle_load_any_adapter(ServerState& state, HttpRequest& request,
                             std::shared_ptr<ResponseWriter> writer) {
  const auto call = read_call(state, request, kInLoadAdapter);
  if (!call.ok()) return refuse(request, *writer, call.error());
  const Status status =
      load_adapter(state, call.value(), [&] { return read_adapter_folder(call->path); });
  answer_call(state, request, *writer, status, call.value(), "added");
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
  answer_call(state, request, *writer, call->model->adapters.unload(call->name), call.value(),
              "removed");
}

}  // namespace headrace
