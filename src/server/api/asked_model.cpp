#include "server/api/asked_model.h"

#include <algorithm>

#include "server/api/fields.h"
#include "server/api/json.h"

namespace headrace {

Result<std::string> asked_model(const boost::json::object& body, const ServingModel& model) {
  const auto name = TRY(Fields(body).text("model"));
  if (!name || name->empty()) return model.info.name;
  if (std::find(model.names.begin(), model.names.end(), *name) != model.names.end()) {
    return std::string(*name);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("the model {} does not exist here, this server has '{}'",
                           show_value(boost::json::string(*name)), model.info.name),
               {},
               "model"};
}

}  // namespace headrace
