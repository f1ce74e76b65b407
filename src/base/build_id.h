// The identity of this binary, for files that only the binary that wrote them may read.
#pragma once

#include <string>

namespace headrace {

// Hex of the build id that the linker put into the program; empty if it put none.
std::string build_id();

}  // namespace headrace
