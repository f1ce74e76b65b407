#include "server/http/syntax.h"

#include <algorithm>
#include <charconv>

namespace headrace {
namespace {

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// reg-name of RFC 3986, which holds IPv4 addresses too.
bool is_host_name(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    if (is_alphanumeric(name[i]) || is_one_of(name[i], "-._~!$&'()*+,;=")) continue;
    const bool is_escape = name[i] == '%' && i + 2 < name.size() && hex_digit(name[i + 1]) >= 0 &&
                           hex_digit(name[i + 2]) >= 0;
    if (!is_escape) return false;
    i += 2;
  }
  return !name.empty();
}

bool is_bracketed_address(std::string_view name) {
  if (name.size() < 4 || name.front() != '[' || name.back() != ']') return false;
  const std::string_view inside = name.substr(1, name.size() - 2);
  return inside.find(':') != std::string_view::npos &&
         std::all_of(inside.begin(), inside.end(),
                     [](char c) { return hex_digit(c) >= 0 || c == ':' || c == '.'; });
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

// The length of "http://" or "https://" at the front, else 0.
size_t scheme_length(std::string_view text) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (equals_ignoring_case(text.substr(0, scheme.size()), scheme)) return scheme.size();
  }
  return 0;
}

}  // namespace

bool is_http_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || is_one_of(c, "!#$%&'*+-.^_`|~");
  });
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && to_lower(a) == to_lower(b);
}

bool list_holds(std::string_view list, std::string_view lower_case_word) {
  const auto elements = split_list(list);
  return std::any_of(elements.begin(), elements.end(), [&](std::string_view element) {
    return equals_ignoring_case(element, lower_case_word);
  });
}

std::optional<double> coding_quality(std::string_view accept_encoding, std::string_view coding) {
  std::optional<double> any;
  for (const std::string_view element : split_list(accept_encoding)) {
    const size_t semicolon = std::min(element.find(';'), element.size());
    const std::string_view name = trim_spaces(element.substr(0, semicolon));
    double quality = 1;
    if (semicolon < element.size()) {
      const std::string_view parameter = trim_spaces(element.substr(semicolon + 1));
      const std::string_view digits = parameter.substr(std::min<size_t>(2, parameter.size()));
      const char* end = digits.data() + digits.size();
      const bool is_quality = parameter.starts_with("q=") || parameter.starts_with("Q=");
      const auto [stop, error] = std::from_chars(digits.data(), end, quality);
      const bool good = is_quality && error == std::errc() && stop == end && quality >= 0;
      quality = good ? std::min(quality, 1.0) : 0;
    }
    if (equals_ignoring_case(name, coding)) return quality;
    if (name == "*") any = quality;
  }
  return any;
}

std::optional<HttpHost> parse_host(std::string_view text) {
  const size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  if (bracket == std::string_view::npos) return std::nullopt;
  const size_t colon = std::min(text.find(':', bracket), text.size());
  const std::string_view name = text.substr(0, colon);
  const std::string_view port = text.substr(std::min(colon + 1, text.size()));
  if (!is_digits(port) || port.size() > 5) return std::nullopt;
  if (bracket == 0 ? !is_host_name(name) : !is_bracketed_address(name)) return std::nullopt;
  return HttpHost{to_lower(name), std::string(port)};
}

std::optional<HttpTarget> parse_target(std::string_view text) {
  HttpTarget target;
  if (const size_t scheme = scheme_length(text); scheme > 0) {
    text.remove_prefix(scheme);
    const size_t end = std::min(text.find_first_of("/?"), text.size());
    target.authority = text.substr(0, end);
    if (!parse_host(target.authority)) return std::nullopt;
    text.remove_prefix(end);
  } else if (text != "*" && !text.starts_with('/')) {
    return std::nullopt;
  }
  if (text.find_first_of("# \t") != std::string_view::npos) return std::nullopt;
  const size_t question = std::min(text.find('?'), text.size());
  auto path = percent_decode(text.substr(0, question));
  if (!path) return std::nullopt;
  target.path = path->empty() ? "/" : std::move(*path);
  target.query = text.substr(std::min(question + 1, text.size()));
  return target;
}

}  // namespace headrace
