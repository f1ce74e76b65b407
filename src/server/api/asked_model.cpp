#include "server/api/asked_model.h"

#include <algorithm>

#include "server/api/adapter_registry.h"
#include "server/api/fields.h"
#include "server/api/json.h"

namespace headrace {
namespace {

// What is asked for by a name.
struct Asked {
  std::string name;
  std::shared_ptr<const Adapter> adapter;
};

std::optional<Asked> find_named(std::string_view name, const ServingModel& model) {
  if (std::find(model.names.begin(), model.names.end(), name) != model.names.end()) {
    return Asked{std::string(name), nullptr};
  }
  if (model.adapters == nullptr) return std::nullopt;
  auto adapter = model.adapters->find(name);
  if (adapter == nullptr) return std::nullopt;
  return Asked{std::string(name), std::move(adapter)};
}

Result<Asked> find_asked(const boost::json::object& body, const ServingModel& model) {
  const auto name = TRY(Fields(body).text("model"));
  if (!name || name->empty()) return Asked{model.info.name, nullptr};
  auto found = find_named(*name, model);
  const std::string_view untagged = without_latest(*name);
  if (!found && !untagged.empty()) found = find_named(untagged, model);
  if (found) {
    found->name = *name;  // as the client calls it
    return *std::move(found);
  }
  if (model.adapters != nullptr && model.adapters->is_lost(*name)) {
    return lost_adapter(*name, model);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("the model {} does not exist here, this server has '{}'",
                           show_value(boost::json::string(*name)), model.info.name),
               {},
               "model"};
}

}  // namespace

Error lost_adapter(std::string_view name, const ServingModel& model) {
  return Error{
      ErrorCode::kUnavailable,
      fmt::format("the adapter {} could not be loaded again when {} woke; the server's log "
                  "says why",
                  show_value(boost::json::string(name)), model.info.name),
      "load it once more, or unload it", "model"};
}

std::string_view without_latest(std::string_view name) {
  constexpr std::string_view kTag = ":latest";
  return name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : std::string_view();
}

Result<std::string> asked_model(const boost::json::object& body, const ServingModel& model) {
  return TRY(find_asked(body, model)).name;
}

Result<std::shared_ptr<const Adapter>> asked_adapter(const boost::json::object& body,
                                                     const ServingModel& model) {
  return TRY(find_asked(body, model)).adapter;
}

}  // namespace headrace
