#include "base/json.h"

#include <boost/json/parser.hpp>
#include <boost/json/src.hpp>
#include <exception>

namespace headrace {

Result<boost::json::value> parse_json(std::string_view text, std::string_view what,
                                      size_t max_depth) {
  boost::json::parse_options options;
  options.max_depth = max_depth;
  boost::json::parser parser({}, options);
  boost::json::error_code code;
  try {
    const size_t consumed = parser.write_some(text, code);
    if (!code && consumed < text.size()) code = boost::json::error::extra_data;
    if (code) {
      return make_error(ErrorCode::kCorrupt, "{} is not valid JSON: {} at byte {}", what,
                        code.message(), consumed);
    }
    return parser.release();
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kExhausted, "{} cannot be parsed as JSON: {}", what, error.what());
  }
}

const boost::json::value* json_member(const boost::json::value* value, std::string_view key) {
  if (value == nullptr) return nullptr;
  const boost::json::object* object = value->if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

}  // namespace headrace
