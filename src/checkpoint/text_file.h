// Small text files beside the weights (config.json, the index of a sharded checkpoint).
#pragma once

#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/result.h"

namespace headrace {

// The whole file. kNotFound, kIo, or kExhausted when it is larger than `max_bytes`. `stamp`, if
// given: of the file that was read, for a look afterwards whether it has changed.
Result<std::string> read_text_file(const std::string& path, size_t max_bytes,
                                   FileStamp* stamp = nullptr);

// A name that stays in its folder: not empty, no separator, no NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

}  // namespace headrace
