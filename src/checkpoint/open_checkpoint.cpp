#include "checkpoint/checkpoint.h"

#include <cstring>
#include <filesystem>

#include "base/buffer.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"

namespace headrace {
namespace {

// True if the text at `offset` begins with `expected`.
bool has_at(std::span<const std::byte> bytes, size_t offset, std::string_view expected) {
  return bytes.size() >= offset + expected.size() &&
         std::memcmp(bytes.data() + offset, expected.data(), expected.size()) == 0;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) return open_safetensors(path);
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
    return open_safetensors(path);
  }
  if (path.ends_with(".gguf")) return open_gguf(path);
  const MappedFile file = TRY(MappedFile::open(path));
  if (has_at(file.bytes(), 0, "GGUF")) return open_gguf(path);
  if (has_at(file.bytes(), sizeof(uint64_t), "{")) return open_safetensors(path);
  return make_error(ErrorCode::kUnsupported,
                    "{}: is neither a GGUF nor a safetensors file, nor a folder with safetensors",
                    path);
}

}  // namespace headrace
