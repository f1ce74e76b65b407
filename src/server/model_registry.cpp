#include "server/model_registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "server/api/fields.h"
#include "server/api/json.h"

namespace headrace {

ModelRegistry::ModelRegistry(std::vector<ModelPtr> models) : models_(std::move(models)) {
  CHECK(!models_.empty(), "a server without a model");
}

Result<ModelPtr> ModelRegistry::find(std::string_view name) const {
  if (name.empty()) return first();
  for (const ModelPtr& model : models_) {
    if (std::find(model->names.begin(), model->names.end(), name) != model->names.end()) {
      return model;
    }
  }
  std::vector<std::string_view> known;
  for (const ModelPtr& model : models_) known.push_back(model->info.name);
  return Error{ErrorCode::kNotFound,
               fmt::format("the model {} does not exist here, this server has '{}'",
                           show_value(boost::json::string(name)), fmt::join(known, "', '")),
               {},
               "model"};
}

Result<ModelPtr> ModelRegistry::find_for(const boost::json::object& body) const {
  return find(TRY(Fields(body).text("model")).value_or(""));
}

}  // namespace headrace
