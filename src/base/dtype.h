// Storage formats: one row per element or block format found in checkpoint files.
//
// A format with block_elements > 1 stores its values in blocks that run along the innermost
// dimension (K of a weight [N, K]). Layouts that spread one weight over several tensors (GPTQ, AWQ,
// compressed-tensors, block-scaled fp8) are weight schemes, see checkpoint/weight_view.h.
// Sources: GGUF block formats of ggml, the safetensors format, OCP FP8 and MX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4NL,
  kIQ4XS,
  kMXFP4,
  kNVFP4,
  kCount,
};

struct DTypeRow {
  DType dtype;
  std::string_view name;              // "Q4_K", as --inspect prints it
  int gguf_id;                        // type id in GGUF tensor infos, -1 if GGUF has none
  std::string_view safetensors_name;  // "BF16", empty if safetensors has none
  uint32_t block_elements;
  uint32_t block_bytes;
  // Writes num_blocks * block_elements floats; exact as the format defines. Null for formats that
  // hold no weights (integers other than those used as weights).
  void (*dequantise)(const std::byte* blocks, int64_t num_blocks, float* values);
};

const DTypeRow& dtype_row(DType dtype);
std::span<const DTypeRow> dtype_rows();
inline std::string_view dtype_name(DType dtype) { return dtype_row(dtype).name; }

// Null if no row has this id or name.
const DTypeRow* find_dtype_by_gguf_id(uint32_t gguf_id);
const DTypeRow* find_dtype_by_safetensors_name(std::string_view name);

}  // namespace headrace
