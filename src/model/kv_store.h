// KvStore: the bytes behind KV block ids. No policy: the engine's KvCache decides who holds which.
//
// One slab of equal blocks (model/cache_groups.h): a block is contiguous over the layers of its
// column, so that a spill is one read or write. Created, it is address space; the system gives
// memory for a page when it is written first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/cache_groups.h"

namespace headrace {

class KvStore {
 public:
  // kExhausted when memory is short. The backend outlives the store.
  static Result<KvStore> create(Backend& backend, const CacheLayout& layout, int64_t num_blocks);

  // A layer whose planes are keys and values of one shape.
  KvLayer layer(int layer_idx);
  KvPlaneView plane(int layer_idx, int plane_idx);
  // All planes of a layer with state, piece by piece; good as long as the store.
  std::span<const KvPlaneView> state(int layer_idx) const;
  int64_t num_blocks() const { return num_blocks_; }
  int num_columns() const { return num_columns_; }
  size_t num_bytes() const { return memory_.size(); }
  size_t block_bytes() const { return block_bytes_; }
  // Copies one block's bytes over another's (fork of a sequence).
  void copy_block(int32_t from, int32_t to);
  void zero_block(int32_t block_id);
  // Its memory in pieces of kPieceBytes, which large pages have: how many the first blocks reach
  // into, and Backend::touch() of one.
  static constexpr size_t kPieceBytes = size_t{2} << 20;
  int64_t num_pieces(int64_t num_blocks) const;
  void touch_piece(int64_t piece);
  // One block's bytes, block_bytes() of them, to and from host memory.
  void read_block(int32_t block_id, std::span<std::byte> to);
  void write_block(int32_t block_id, std::span<const std::byte> from);

 private:
  struct Layer {
    CachePolicy policy = CachePolicy::kFull;
    std::vector<KvPlaneView> planes;
  };
  const Layer& at(int layer_idx) const;
  DevicePtr<std::byte> block(int32_t block_id);

  Backend* backend_ = nullptr;
  std::vector<Layer> layers_;
  int num_columns_ = 0;
  size_t block_bytes_ = 0;
  int64_t num_blocks_ = 0;
  DeviceMemory memory_;
};

}  // namespace headrace
