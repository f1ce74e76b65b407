// installed: which models the store holds, and taking them out of it.
//
// A model is listed under a name that resolve_model() finds again: the one it was pulled with, or,
// of a URL, its place in the store ("url/0123456789abcdef/model.gguf"). A split GGUF of a
// repository is one model under the name of its first part. What an interrupted pull has left is
// not a model; it goes with the model, or alone under the same name. Any thread; other processes
// may pull meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace headrace {

struct InstalledModel {
  std::string name;        // "smollm2:135m", "hf:org/repo@v1:model.gguf"
  std::string path;        // a file (the first part of a split one), or a folder with config.json
  uint64_t num_bytes = 0;  // of all parts
  int64_t modified = 0;    // seconds since 1970
};

// By name. store_dir empty: default_store_dir(); a store that does not exist yet is empty.
// kIo if it cannot be read.
Result<std::vector<InstalledModel>> list_installed(const std::string& store_dir);

// Of the name of a pulled model, also as it was typed for the pull. Waits while it is being pulled.
// Returns the bytes that were freed. kNotFound if nothing of it is there; kInvalidArgument for what
// is no name (a path: files outside the store are not touched).
Result<uint64_t> remove_installed(const std::string& name, const std::string& store_dir);

}  // namespace headrace
