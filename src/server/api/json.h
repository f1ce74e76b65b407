// json: reading request bodies, with limits. Writing is json_writer.h's.
#pragma once

#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "server/api/json_writer.h"

namespace headrace {

// A request body: UTF-8 checked, no NaN, at most kMaxJsonDepth levels and 10,000 keys an object, no
// key twice in one object. kInvalidArgument says what is wrong and at which byte, or which key it
// is. Linear but for the
// sorting of each object's keys.
Result<boost::json::value> parse_body(std::string_view text);
std::string to_text(const boost::json::value& value);
// An object's text on one line, as to_text writes it; "{}" for what is no object: the arguments of
// a call that was cut off.
std::string object_text(std::string_view text);
inline std::string_view text_view(const boost::json::string& text) {
  return {text.data(), text.size()};
}
// As a message shows it: short scalars as they are, all else by type and size.
std::string show_value(const boost::json::value& value);
// "a string", "a number", "null": how messages call a value's type.
std::string_view type_name(const boost::json::value& value);

}  // namespace headrace
