#include "model/config/json_object.h"

#include <cmath>

#include "base/json.h"

namespace headrace {
namespace {

namespace json = boost::json;

std::string shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 60) text.replace(57, std::string::npos, "...");
  return text;
}

std::optional<double> number_of(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double()) return value.get_double();
  return {};
}

std::optional<int64_t> integer_of(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    if (std::abs(number) < 0x1p53 && number == std::floor(number)) {
      return static_cast<int64_t>(number);
    }
  }
  return {};
}

}  // namespace

Result<json::value> parse_json_object(std::string_view text, std::string_view file_name) {
  json::value value = TRY(parse_json(text, file_name));
  if (!value.is_object()) {
    return make_error(ErrorCode::kCorrupt, "{} holds {}, but must hold a JSON object", file_name,
                      shown(value));
  }
  return value;
}

Error JsonObject::wrong_kind(std::string_view key, const json::value& value,
                             std::string_view needed) const {
  return make_error(ErrorCode::kInvalidArgument, "{}: {} is {}, but must be {}", file_, key,
                    shown(value), needed);
}

Error JsonObject::missing(std::string_view key) const {
  return make_error(ErrorCode::kNotFound, "{} has no {}, which is needed", file_, key);
}

std::vector<std::string_view> JsonObject::keys() const {
  std::vector<std::string_view> keys;
  for (const auto& entry : *object_) keys.emplace_back(entry.key().data(), entry.key().size());
  return keys;
}

JsonObject JsonObject::with_names(const KeyNames& names) const {
  JsonObject named = *this;
  named.names_ = names;
  return named;
}

const json::value* JsonObject::find_as(json::string_view name) const {
  const json::value* value = object_->if_contains(name);
  for (const std::string_view nested : names_.nested) {
    if (value != nullptr || nested.empty()) break;
    const json::value* inner = object_->if_contains({nested.data(), nested.size()});
    if (inner != nullptr && inner->is_object()) value = inner->get_object().if_contains(name);
  }
  if (value == nullptr && outer_ != nullptr) value = outer_->if_contains(name);
  return value;
}

const json::value* JsonObject::find(std::string_view key) const {
  const json::value* value = find_as({key.data(), key.size()});
  for (const KeyAlias& row : names_.aliases) {
    if (value != nullptr) break;
    if (row.key == key) value = find_as({row.alias.data(), row.alias.size()});
  }
  return value;
}

bool JsonObject::is_null(std::string_view key) const {
  const json::value* value = find(key);
  return value != nullptr && value->is_null();
}

Result<int64_t> JsonObject::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) {
    if (fallback) return *fallback;
    return missing(key);
  }
  const std::optional<int64_t> number = integer_of(*value);
  if (!number) return wrong_kind(key, *value, "a whole number");
  return *number;
}

Result<int> JsonObject::small_integer(std::string_view key, std::optional<int64_t> fallback,
                                      int64_t least) const {
  const int64_t value = TRY(integer(key, fallback));
  if (value < least || value > 1'000'000) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} is {}, but must be between {} and 1000000", file_, key, value, least);
  }
  return static_cast<int>(value);
}

Result<double> JsonObject::number(std::string_view key, std::optional<double> fallback) const {
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) {
    if (fallback) return *fallback;
    return missing(key);
  }
  const std::optional<double> number = number_of(*value);
  if (!number || !std::isfinite(*number)) return wrong_kind(key, *value, "a finite number");
  return *number;
}

Result<bool> JsonObject::boolean(std::string_view key, bool fallback) const {
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (value->is_bool()) return value->get_bool();
  const std::optional<int64_t> number = integer_of(*value);
  if (number && (*number == 0 || *number == 1)) return *number == 1;
  return wrong_kind(key, *value, "true or false");
}

Result<std::string> JsonObject::text(std::string_view key,
                                     std::optional<std::string> fallback) const {
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) {
    if (fallback) return *std::move(fallback);
    return missing(key);
  }
  if (!value->is_string()) return wrong_kind(key, *value, "a string");
  return std::string(value->get_string());
}

Result<std::vector<double>> JsonObject::numbers(std::string_view key) const {
  std::vector<double> numbers;
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) return numbers;
  if (!value->is_array()) return wrong_kind(key, *value, "a list of numbers");
  for (const json::value& element : value->get_array()) {
    const std::optional<double> number = number_of(element);
    if (!number || !std::isfinite(*number)) return wrong_kind(key, *value, "a list of numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<std::string>> JsonObject::texts(std::string_view key) const {
  std::vector<std::string> texts;
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) return texts;
  if (!value->is_array()) return wrong_kind(key, *value, "a list of strings");
  for (const json::value& element : value->get_array()) {
    if (!element.is_string()) return wrong_kind(key, *value, "a list of strings");
    texts.emplace_back(element.get_string());
  }
  return texts;
}

Result<std::optional<JsonObject>> JsonObject::object(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr || value->is_null()) return std::optional<JsonObject>{};
  if (!value->is_object()) return wrong_kind(key, *value, "an object");
  return std::optional<JsonObject>(JsonObject(value->get_object(), nullptr, file_));
}

}  // namespace headrace
