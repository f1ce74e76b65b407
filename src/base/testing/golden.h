// Where tests find recorded results. Test-only.
//
// The build unpacks every tests/data/golden/*.tar.zst (tools/pack_golden.py) into build/golden.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace headrace::test {

// The repository's own: tiny/, quant/, lora/, gguf/, unseen/, tokenizers/, templates/, real/,
// text.txt.
inline std::filesystem::path archive_root() {
  return std::filesystem::path(HEADRACE_SOURCE_DIR) / "build/golden";
}

// The same, or another collection of the same shape that HEADRACE_GOLDEN names.
inline std::filesystem::path golden_root() {
  const char* given = std::getenv("HEADRACE_GOLDEN");
  if (given != nullptr && *given != '\0') return given;
  return archive_root();
}

}  // namespace headrace::test
