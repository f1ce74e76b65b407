// JsonObject: typed reads from a parsed JSON object with defaults and clear errors.
//
// A view: the parsed value outlives it. A key that is absent or null gives the default; a value of
// the wrong kind is kInvalidArgument that names the key, what was found and what is needed.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config/form_row.h"

namespace headrace {

// kCorrupt with the file's name and the parser's reason; the text must be one JSON object.
Result<boost::json::value> parse_json_object(std::string_view text, std::string_view file_name);

class JsonObject {
 public:
  // outer: looked at when a key is absent here (a wrapper around a text configuration), or null.
  // file: the name that errors say; outlives the view.
  explicit JsonObject(const boost::json::object& object, const boost::json::object* outer = nullptr,
                      std::string_view file = "config.json")
      : object_(&object), outer_(outer), file_(file) {}
  // The same with other names for keys, and objects inside that count as part of it.
  JsonObject with_names(const KeyNames& names) const;

  const boost::json::value* find(std::string_view key) const;  // null if absent
  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool is_null(std::string_view key) const;  // present and null
  bool empty() const { return object_->empty(); }
  std::vector<std::string_view> keys() const;  // of the object itself
  // Present and not null.
  bool has_value(std::string_view key) const { return has(key) && !is_null(key); }

  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  // A size: a whole number from `least`, 1 or 0, to a million.
  Result<int> small_integer(std::string_view key, std::optional<int64_t> fallback = {},
                            int64_t least = 1) const;
  Result<double> number(std::string_view key, std::optional<double> fallback = {}) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key, std::optional<std::string> fallback = {}) const;
  Result<std::vector<double>> numbers(std::string_view key) const;  // empty if absent or null
  Result<std::vector<std::string>> texts(std::string_view key) const;
  // Nothing if absent or null.
  Result<std::optional<JsonObject>> object(std::string_view key) const;

 private:
  const boost::json::object* object_;
  const boost::json::object* outer_;
  std::string_view file_;
  KeyNames names_;

  const boost::json::value* find_as(boost::json::string_view name) const;
  Error wrong_kind(std::string_view key, const boost::json::value& value,
                   std::string_view needed) const;
  Error missing(std::string_view key) const;
};

}  // namespace headrace
