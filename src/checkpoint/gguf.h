// GGUF reader: versions 2 and 3, little-endian, single files and split files.
//
// Every count is bounded by the bytes left before anything is allocated; every tensor handed out
// lies inside the file and overlaps no other. Source: the GGUF specification of ggml. Limits beyond
// it: 65,536 keys, 65,536 tensors, 16 MiB per string, 4 Mi array elements over all keys, alignment
// at most 1 MiB. Errors: kCorrupt names the key or tensor, byte offset, found and needed;
// kUnsupported for other versions, big-endian files and type ids without a row in base/dtype.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"

namespace headrace {

// A split file is opened by its first part; another part is kInvalidArgument naming the first.
Result<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path);

// From memory that outlives the checkpoint; `name` stands for the path in messages. A part of a
// split file is refused.
Result<std::unique_ptr<Checkpoint>> parse_gguf(std::span<const std::byte> bytes,
                                               const std::string& name);

}  // namespace headrace
