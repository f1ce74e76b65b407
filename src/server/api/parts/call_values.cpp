#include "server/api/parts/call_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include "base/json.h"
#include "server/api/parts/loose_json.h"

namespace headrace {
namespace {

// The value as JSON where it is JSON, or Python's way to write it; else empty.
std::string literal_json(std::string_view value) {
  boost::system::error_code failed;
  boost::json::parse(value, failed);
  if (!failed) return std::string(value);
  std::string json;
  LooseObject object('}');
  const std::string wrapped = fmt::format("v:{}}}", value);
  for (size_t i = 0; i < wrapped.size(); ++i) {
    const LooseObject::Step step = object.feed(wrapped[i], json);
    if (step == LooseObject::Step::kBroken) return {};
    if (step == LooseObject::Step::kEnds && i + 1 < wrapped.size()) return {};
  }
  constexpr std::string_view kHead = "{\"v\":";
  const bool is_word = !value.empty() && is_word_byte(value.front());
  if (is_word && json_of_word(value).empty()) return {};
  return json.size() > kHead.size() ? json.substr(kHead.size(), json.size() - kHead.size() - 1)
                                    : std::string();
}

ValueType type_of_schema(const boost::json::value& schema) {
  const boost::json::object* object = schema.if_object();
  const boost::json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  if (type == nullptr) return ValueType::kJson;
  if (type->is_string()) return *type == "string" ? ValueType::kText : ValueType::kJson;
  if (!type->is_array()) return ValueType::kJson;
  const boost::json::array& types = type->get_array();
  if (std::find(types.begin(), types.end(), "string") == types.end()) return ValueType::kJson;
  return types.size() == 1 ? ValueType::kText : ValueType::kTextOrNull;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string without_count(std::string name) {
  constexpr std::string_view kPrefix = "functions.";
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos || colon + 1 == name.size()) return name;
  const bool counts = std::all_of(name.begin() + static_cast<int64_t>(colon) + 1, name.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return counts ? name.substr(0, colon) : name;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) append_escaped(out, c);
  return out + "\"";
}

std::string value_json(std::string_view value, ValueType type) {
  const std::string_view bare = trimmed(value);
  if (type == ValueType::kTextOrNull) return bare == "null" ? "null" : quoted(value);
  std::string json = literal_json(bare);
  return json.empty() ? quoted(value) : json;
}

CallableTools::CallableTools(const std::vector<Declared>& tools) {
  for (const Declared& function : tools) {
    Tool tool{function.name, {}};
    boost::system::error_code failed;
    const auto schema = boost::json::parse(function.schema, failed);
    const boost::json::value* properties = failed ? nullptr : json_member(&schema, "properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [key, value] : properties->get_object()) {
        tool.arguments.emplace_back(std::string(key.data(), key.size()), type_of_schema(value));
      }
    }
    tools_.push_back(std::move(tool));
  }
}

bool CallableTools::has(std::string_view name) const {
  return std::any_of(tools_.begin(), tools_.end(),
                     [&](const Tool& tool) { return tool.name == name; });
}

ValueType CallableTools::type_of(std::string_view name, std::string_view key) const {
  for (const Tool& tool : tools_) {
    if (tool.name != name) continue;
    for (const auto& [argument, type] : tool.arguments) {
      if (argument == key) return type;
    }
  }
  return ValueType::kJson;
}

}  // namespace headrace
