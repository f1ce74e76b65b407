// Small text files beside the weights (config.json, the index of a sharded checkpoint).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// The whole file. kNotFound, kIo, or kExhausted when it is larger than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, size_t max_bytes);

// A name that stays in its folder: not empty, no separator, no NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

}  // namespace headrace
