// Is a downloaded file what its name says? A login or error page, sent with status 200, is not.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace::hub {

// Looks at the beginning of the file at `path` that shall be called `name`: .gguf, .safetensors and
// .json have a form; of others only pages of HTML are refused. kCorrupt says what came instead,
// with the type that the server named (may be empty).
Status check_file_kind(const std::string& path, std::string_view name,
                       std::string_view content_type);

}  // namespace headrace::hub
