// JSON from files and requests. The library (Boost.JSON) is compiled once, in json.cpp.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace headrace {

constexpr size_t kMaxJsonDepth = 64;

// The whole text as one value. kCorrupt with `what`, the library's reason and the byte offset.
// Standard JSON only: no comments, no trailing commas; objects keep the last of duplicate keys.
Result<boost::json::value> parse_json(std::string_view text, std::string_view what,
                                      size_t max_depth = kMaxJsonDepth);

// Member of an object; null if `value` is null, no object, or has no such key. Lets lookups chain.
const boost::json::value* json_member(const boost::json::value* value, std::string_view key);

}  // namespace headrace
