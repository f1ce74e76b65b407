// Where tests find recorded results. Test-only.
//
// The build unpacks tests/data/golden/*.tar.zst (tools/pack_golden.py) below build/golden.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace headrace::test {

// The checkpoints that this version runs, with their results: tiny/, quant/, gguf/.
inline std::filesystem::path dense_root() {
  return std::filesystem::path(HEADRACE_SOURCE_DIR) / "build/golden/dense";
}

// Everything: tiny/ and quant/ of all families, lora/, tokenizers/, templates/, real/, text.txt.
// HEADRACE_GOLDEN names another collection of the same shape.
inline std::filesystem::path golden_root() {
  const char* given = std::getenv("HEADRACE_GOLDEN");
  if (given != nullptr && *given != '\0') return given;
  return std::filesystem::path(HEADRACE_SOURCE_DIR) / "build/golden/all";
}

}  // namespace headrace::test
