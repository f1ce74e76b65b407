#include "base/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace headrace {

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trim_spaces(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> elements;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view element = trim_spaces(text.substr(0, comma));
    if (!element.empty()) elements.push_back(element);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return elements;
}

std::string format_bytes(size_t num_bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (num_bytes < 1024) return fmt::format("{} bytes", num_bytes);
  auto value = static_cast<double>(num_bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {  // what would be shown as 1024.0
    value /= 1024;
    ++unit;
  }
  const double shown = std::round(value * 10) / 10;
  return fmt::format("{:.{}f} {}", shown, shown == std::floor(shown) ? 0 : 1, kUnits[unit]);
}

void append_vformat(std::string& text, fmt::string_view format, fmt::format_args args) {
  fmt::vformat_to(std::back_inserter(text), format, args);
}

}  // namespace headrace
