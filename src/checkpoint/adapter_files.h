// Files of an adapter, read into memory: an adapter's folder may be written by others while the
// server runs, and nothing of it stays mapped.
//
// Only regular files with one name are read, through descriptors that never follow a link: what a
// name stood for when it was looked at is what is read. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/result.h"

namespace headrace {

inline constexpr size_t kMaxAdapterBytes = size_t{4} << 30;
inline constexpr size_t kMaxAdapterConfigBytes = size_t{1} << 20;

struct AdapterFolder {
  std::string config;  // adapter_config.json
  Buffer weights;      // adapter_model.safetensors, num_bytes of it
  size_t num_bytes = 0;

  std::span<const std::byte> bytes() const { return {weights.data(), num_bytes}; }
};

// A folder that whoever started the program names. kNotFound, or kIo with the system's reason;
// kUnsupported where the weights are in a file that can run code (adapter_model.bin).
Result<AdapterFolder> read_adapter_folder(const std::string& folder);

// A folder below `root` that a client names: its path from there, or an absolute one that begins
// with the root as it is given. kInvalidArgument, without looking at any file, for a path that
// leads out or could: "..", ".", empty parts, a NUL, more than 4095 bytes.
Result<AdapterFolder> read_adapter_folder_under(const std::string& root, std::string_view path);

}  // namespace headrace
