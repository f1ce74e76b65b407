#include "base/quote.h"

#include <fmt/format.h>

#include <iterator>

namespace headrace {

std::string quote(std::string_view text) {
  constexpr size_t kMaxShown = 120;
  std::string quoted = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    if (c >= ' ' && c <= '~' && c != '\'' && c != '\\') {
      quoted += c;
    } else {
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  quoted += text.size() > kMaxShown ? "...'" : "'";
  return quoted;
}

}  // namespace headrace
