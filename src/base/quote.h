// quote: bytes from a file or request, made safe to print in an error message or log line.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// 'text' in single quotes; bytes outside printable ASCII and quotes become \xNN, and a text longer
// than 120 bytes is cut and ends in "...'".
std::string quote(std::string_view text);

}  // namespace headrace
