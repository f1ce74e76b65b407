// suggest: which of the known names a mistyped word was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// The nearest name, or empty if none is near: within one edit (letter added, left out, changed, or
// two swapped) per three letters, rounded, or one of which the word is the beginning. Case does not
// count. Among equals the first of the list.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace headrace
