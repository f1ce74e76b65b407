// asked_model: by which of its names a body asks for the model. The same for every dialect.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/request.h"
#include "server/api/serving_model.h"

namespace headrace {

// What clients write for a name without a tag: "tiny:latest" means "tiny". Empty: it has no such
// end.
std::string_view without_latest(std::string_view name);

// The name in "model", the model's or one of its adapters, or the model's own where there is none.
// kNotFound if it is not served here; what lost_adapter() says of one that is lost.
Result<std::string> asked_model(const boost::json::object& body, const ServingModel& model);
// The adapter of that name; null: the model alone.
Result<std::shared_ptr<const Adapter>> asked_adapter(const boost::json::object& body,
                                                     const ServingModel& model);

// Of the name of an adapter that its model had before it slept and has not now.
Error lost_adapter(std::string_view name, const ServingModel& model);

}  // namespace headrace
