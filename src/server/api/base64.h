// Bytes in base64 (RFC 4648, with its padding and without white space).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

// kInvalidArgument where the text is none.
Result<std::vector<std::byte>> bytes_of_base64(std::string_view text);

}  // namespace headrace
