// One GGUF file: header, keys, tensor infos and ranges. Used by gguf.cpp, once per part.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/mapped_checkpoint.h"
#include "checkpoint/metadata.h"

namespace headrace {

// Reads the keys of `bytes` into `metadata` and adds its tensors to `checkpoint`; both may hold
// what earlier parts added. `name` is for messages. Errors as in gguf.h.
Status read_gguf_part(std::span<const std::byte> bytes, std::string_view name, Metadata* metadata,
                      MappedCheckpoint* checkpoint);

}  // namespace headrace
