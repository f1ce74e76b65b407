// Fields: the members of a request body, read with type and range checks.
//
// Absent and null mean the same: not given. A member of the wrong type or out of range is
// kInvalidArgument with `param` set and a message that says what was found and what is needed.
// Views the object; use it while the object lives.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/api/json.h"

namespace headrace {

// "temperature is 3, but it must be a number from 0 to 2".
Error bad_field(std::string_view param, std::string_view found, std::string_view needed);

class Fields {
 public:
  explicit Fields(const boost::json::object& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  // Null if absent or JSON null.
  const boost::json::value* find(std::string_view name) const;
  Result<std::optional<double>> number(std::string_view name, double low, double high) const;
  // Whole numbers, also when written as 4.0.
  Result<std::optional<int64_t>> integer(std::string_view name, int64_t low, int64_t high) const;
  Result<std::optional<bool>> boolean(std::string_view name) const;
  Result<std::optional<std::string_view>> text(std::string_view name) const;
  Result<const boost::json::array*> array(std::string_view name) const;    // null: not given
  Result<const boost::json::object*> object(std::string_view name) const;  // null: not given

  // The field's name as messages show it: "stream_options.include_usage".
  std::string path(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  Error wrong(std::string_view name, const boost::json::value& found,
              std::string_view needed) const {
    return bad_field(path(name), show_value(found), needed);
  }

  const boost::json::object& object_;
  const std::string prefix_;  // of nested objects, with its dot
};

// A number that has no fraction and fits.
std::optional<int64_t> whole_number(const boost::json::value& value);

}  // namespace headrace
