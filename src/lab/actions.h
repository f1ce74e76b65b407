// Actions: what a person or an agent may do in a laboratory, one row each.
//
// The command line and the Model Context Protocol server call the same rows with a JSON object, so
// both have the same limits and every write says who made it.
#pragma once

#include <boost/json/object.hpp>
#include <span>
#include <string_view>

#include "base/result.h"
#include "lab/store.h"

namespace headrace::lab {

struct Action {
  std::string_view name;    // "add_hypothesis"
  std::string_view help;    // for whoever calls it
  std::string_view schema;  // JSON schema of its arguments
  bool writes;
  Result<boost::json::object> (*run)(Store& store, const boost::json::object& arguments,
                                     std::string_view author);
};

std::span<const Action> actions();
// kNotFound lists the names.
Result<boost::json::object> run_action(Store& store, std::string_view name,
                                       const boost::json::object& arguments,
                                       std::string_view author);

}  // namespace headrace::lab
