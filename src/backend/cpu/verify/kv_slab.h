// A slab of KV blocks as verification sees it: the order of kernels.h written down a second time,
// element by element, so that a kernel's own arithmetic of places is checked and not shared.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {

struct KvSlab {
  KvDtype type;
  int num_kv_heads;
  int head_dim;
  size_t block_stride;             // more than a block: other layers lie between
  std::vector<int32_t> table;      // of one sequence: scattered blocks, first and last included
  std::vector<uint8_t> bytes;      // poisoned
  std::vector<Expected> expected;  // per element; as bytes until set

  KvSlab(KvDtype type, int num_kv_heads, int head_dim, int64_t num_positions);

  Element element() const { return type == KvDtype::kF32 ? Element::kF32 : Element::kBF16; }
  // Element index of dimension d (up to the padding) of a key or value.
  size_t key_at(int64_t position, int head, int64_t d) const;
  size_t value_at(int64_t position, int head, int64_t d) const;
  // The value as the type keeps it.
  float rounded(float value) const;
  void store(size_t element, float value);
  Operand operand(bool is_output) const;

 private:
  size_t plane(int64_t position, int head) const;  // element index of a head's K plane
};

}  // namespace headrace::cpu
