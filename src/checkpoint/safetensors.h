// Safetensors reader: one file, a file set with an index, or a directory that holds either.
//
// As the official reader does, it refuses duplicate names, overlaps, gaps and bytes that no tensor
// covers; the header is at most 25 MiB. Files named by an index must lie in its folder. Errors:
// kCorrupt names tensor, found and needed; kUnsupported an unknown dtype; kNotFound.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"

namespace headrace {

inline constexpr size_t kMaxIndexBytes = size_t{64} << 20;  // of the index of a sharded checkpoint

// A directory (its model.safetensors.index.json, model.safetensors or only *.safetensors), an index
// file, or a .safetensors file; a shard that an index beside it lists opens the whole set.
Result<std::unique_ptr<Checkpoint>> open_safetensors(const std::string& path);

// From memory that outlives the checkpoint; `name` stands for the path in messages.
Result<std::unique_ptr<Checkpoint>> parse_safetensors(std::span<const std::byte> bytes,
                                                      const std::string& name);

}  // namespace headrace
