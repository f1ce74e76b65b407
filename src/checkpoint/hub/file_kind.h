// Is a downloaded file what its name says, and whole? A login or error page, sent with status 200,
// is not; neither is one that ends before its tensors do.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace::hub {

// Looks at the beginning of the file at `path` that shall be called `name`: .gguf, .safetensors and
// .json have a form; of others only pages of HTML are refused. kCorrupt says what came instead,
// with the type that the server named (may be empty), or which tensor of a .gguf or .safetensors
// file lies outside it. Files of a version or type that is not read here pass.
Status check_file_kind(const std::string& path, std::string_view name,
                       std::string_view content_type);

}  // namespace headrace::hub
