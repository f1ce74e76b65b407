#include "base/quote.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/strings.h"

namespace headrace {

std::string quote(std::string_view text) {
  constexpr size_t kMaxShown = 120;
  std::string quoted;
  quoted.reserve(std::min(text.size(), kMaxShown) + 2);
  quoted += '\'';
  for (const char c : text.substr(0, kMaxShown)) {
    if (c >= ' ' && c <= '~' && c != '\'' && c != '\\') {
      quoted += c;
    } else {
      append_format(quoted, "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  quoted += text.size() > kMaxShown ? "...'" : "'";
  return quoted;
}

}  // namespace headrace
