// http_syntax: the small grammars of HTTP that more than one part reads. Pure functions.
//
// Sources: RFC 9110 (tokens, lists, quality values), RFC 9112 (request targets), RFC 3986 (hosts).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace headrace {

bool is_http_token(std::string_view text);  // method, field name; not empty
bool equals_ignoring_case(std::string_view a, std::string_view b);
// Does the list, such as a Connection header, hold this word?
bool list_holds(std::string_view list, std::string_view lower_case_word);

// What the list of an Accept-Encoding header gives a coding: 0 (refused) to 1, or nothing where
// neither the coding nor "*" is named. A broken quality value counts as 0.
std::optional<double> coding_quality(std::string_view accept_encoding, std::string_view coding);

struct HttpHost {
  std::string name;  // lower case; an IPv6 address with its brackets
  std::string port;  // digits, or empty
};
// host[:port] as in a Host header; nothing where that is not its form, or it names no host.
std::optional<HttpHost> parse_host(std::string_view text);

struct HttpTarget {
  std::string path;       // percent-decoded
  std::string query;      // as sent
  std::string authority;  // of the absolute form (http://HOST/path), else empty
};
// Origin form, absolute form, or "*". Nothing for any other, and for a broken percent escape.
std::optional<HttpTarget> parse_target(std::string_view text);

}  // namespace headrace
