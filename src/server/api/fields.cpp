#include "server/api/fields.h"

#include <cmath>

namespace headrace {

Error bad_field(std::string_view param, std::string_view found, std::string_view needed) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} is {}, but it must be {}", param, found, needed),
               {},
               std::string(param)};
}

std::optional<int64_t> whole_number(const boost::json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    if (std::floor(number) == number && std::abs(number) < 0x1p53) {
      return static_cast<int64_t>(number);
    }
  }
  return std::nullopt;
}

const boost::json::value* Fields::find(std::string_view name) const {
  const boost::json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::optional<double>> Fields::number(std::string_view name, double low, double high) const {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::optional<double>();
  if (value->is_number()) {
    const double number = value->to_number<double>();
    if (std::isfinite(number) && number >= low && number <= high) {
      return std::optional<double>(number);
    }
  }
  return wrong(name, *value, fmt::format("a number from {} to {}", low, high));
}

Result<std::optional<int64_t>> Fields::integer(std::string_view name, int64_t low,
                                               int64_t high) const {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::optional<int64_t>();
  const auto number = whole_number(*value);
  if (number && *number >= low && *number <= high) return number;
  return wrong(name, *value, fmt::format("a whole number from {} to {}", low, high));
}

Result<std::optional<bool>> Fields::boolean(std::string_view name) const {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_bool()) return std::optional<bool>(value->get_bool());
  return wrong(name, *value, "true or false");
}

Result<std::optional<std::string_view>> Fields::text(std::string_view name) const {
  const boost::json::value* value = find(name);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->is_string()) {
    const boost::json::string& text = value->get_string();
    return std::optional<std::string_view>(std::string_view(text.data(), text.size()));
  }
  return wrong(name, *value, "a string");
}

Result<const boost::json::array*> Fields::array(std::string_view name) const {
  const boost::json::value* value = find(name);
  if (value == nullptr) return static_cast<const boost::json::array*>(nullptr);
  if (value->is_array()) return &value->get_array();
  return wrong(name, *value, "a list");
}

Result<const boost::json::object*> Fields::object(std::string_view name) const {
  const boost::json::value* value = find(name);
  if (value == nullptr) return static_cast<const boost::json::object*>(nullptr);
  if (value->is_object()) return &value->get_object();
  return wrong(name, *value, "an object");
}

}  // namespace headrace
