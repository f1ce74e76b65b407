// Block fields: one block of a GGUF format taken apart into factors and integer codes.
//
// The step between a file's bit layout and a packed chunk; knows nothing of panels. Formulas: the
// GGUF block formats (ggml), see docs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace headrace::cpu {

struct BlockFields {
  uint16_t scale = 0;           // f16 bits, or an e8m0 exponent
  uint16_t minimum = 0;         // f16 bits
  uint8_t sub_scales[16] = {};  // as stored (signed bytes for Q6_K)
  uint8_t sub_mins[16] = {};
  uint8_t codes[256] = {};  // as stored, zero point not subtracted (signed bytes for Q8_0)
};

using ReadBlock = void (*)(const std::byte* block, BlockFields* fields);

// Null if the format has no codes layout.
ReadBlock block_reader(DType dtype);

}  // namespace headrace::cpu
