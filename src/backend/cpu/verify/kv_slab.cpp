#include "backend/cpu/verify/kv_slab.h"

#include <cstring>

#include "backend/cpu/verify/guarded_memory.h"
#include "base/numeric.h"

namespace headrace::cpu {

KvSlab::KvSlab(KvDtype kv_type, int kv_heads, int dim, int64_t num_positions)
    : type(kv_type), num_kv_heads(kv_heads), head_dim(dim) {
  const size_t block_bytes = 2 * static_cast<size_t>(kv_heads) * kv_plane_bytes(type, dim);
  block_stride = block_bytes + 192;
  const auto num_blocks = static_cast<int32_t>((num_positions + kKvBlock - 1) / kKvBlock);
  // Backwards, with a block of somebody else in the middle.
  for (int32_t b = 0; b < num_blocks; ++b) {
    const int32_t place = num_blocks - 1 - b;
    table.push_back(place < num_blocks / 2 ? place : place + 1);
  }
  bytes.assign(static_cast<size_t>(num_blocks) * block_stride + block_bytes, kPoison);
  expected.resize(bytes.size() / element_bytes(element()));
}

size_t KvSlab::plane(int64_t position, int head) const {
  const auto block = static_cast<size_t>(table[static_cast<size_t>(position / kKvBlock)]);
  const size_t plane_elements = static_cast<size_t>(padded_dim(head_dim)) * kKvBlock;
  return block * block_stride / element_bytes(element()) +
         static_cast<size_t>(head) * 2 * plane_elements;
}

size_t KvSlab::key_at(int64_t position, int head, int64_t d) const {
  const int64_t slot = position % kKvBlock;
  const int64_t at =
      type == KvDtype::kF32 ? d * kKvBlock + slot : (d / 2 * kKvBlock + slot) * 2 + d % 2;
  return plane(position, head) + static_cast<size_t>(at);
}

size_t KvSlab::value_at(int64_t position, int head, int64_t d) const {
  const int64_t slot = position % kKvBlock, dims = padded_dim(head_dim);
  const int64_t at = type == KvDtype::kF32 ? slot * dims + d : (slot / 2 * dims + d) * 2 + slot % 2;
  return plane(position, head) + static_cast<size_t>(dims * kKvBlock + at);
}

float KvSlab::rounded(float value) const {
  return type == KvDtype::kF32 ? value : bf16_to_float(float_to_bf16(value));
}

void KvSlab::store(size_t place, float value) {
  if (type == KvDtype::kF32) {
    std::memcpy(bytes.data() + place * 4, &value, 4);
  } else {
    const uint16_t bits = float_to_bf16(value);
    std::memcpy(bytes.data() + place * 2, &bits, 2);
  }
}

Operand KvSlab::operand(bool is_output) const {
  Operand operand = input_of("KV blocks", std::span<const uint8_t>(bytes), 64);
  operand.is_output = is_output;
  operand.element = element();
  if (is_output) operand.expected = expected;
  return operand;
}

}  // namespace headrace::cpu
