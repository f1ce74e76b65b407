// KvStore: the bytes behind KV block ids. No policy: the engine's KvCache decides who holds which.
//
// One slab: block b is contiguous over all layers, so that a spill is one read or write. Created,
// it is address space; the system gives memory for a page when it is written first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace headrace {

class KvStore {
 public:
  // layers[i] is the shape of layer i's cache. kExhausted when memory is short.
  // The backend outlives the store.
  static Result<KvStore> create(Backend& backend, std::vector<KvShape> layers, int64_t num_blocks);
  static size_t block_bytes(const Backend& backend, const std::vector<KvShape>& layers);

  KvLayer layer(int layer_idx);
  int64_t num_blocks() const { return num_blocks_; }
  size_t num_bytes() const { return memory_.size(); }
  // Copies one block's bytes over another's (fork of a sequence).
  void copy_block(int32_t from, int32_t to);
  void zero_block(int32_t block_id);

 private:
  DevicePtr<std::byte> block(int32_t block_id);

  Backend* backend_ = nullptr;
  std::vector<KvShape> shapes_;
  std::vector<size_t> layer_offset_;  // of each layer within a block
  size_t block_bytes_ = 0;
  int64_t num_blocks_ = 0;
  DeviceMemory memory_;
};

}  // namespace headrace
