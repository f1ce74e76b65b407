// ModelRegistry: the models of a server, by the names that requests call them. Thread-safe.
#pragma once

#include <boost/json/object.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/served_model.h"

namespace headrace {

class ModelRegistry {
 public:
  // At least one; the first answers requests that name none. Of a name that several have, the first
  // is meant.
  explicit ModelRegistry(std::vector<ModelPtr> models);

  // By name or alias; an empty name means the first model. kNotFound lists what there is.
  Result<ModelPtr> find(std::string_view name) const;
  // The one that a body's "model" names.
  Result<ModelPtr> find_for(const boost::json::object& body) const;
  const ModelPtr& first() const { return models_.front(); }
  const std::vector<ModelPtr>& all() const { return models_; }

 private:
  const std::vector<ModelPtr> models_;
};

}  // namespace headrace
