#include "model/kv_store.h"

#include <algorithm>
#include <utility>

namespace headrace {

Result<KvStore> KvStore::create(Backend& backend, const CacheLayout& layout, int64_t num_blocks) {
  KvStore store;
  store.block_bytes_ = layout.block_bytes;
  store.num_columns_ = layout.num_columns;
  size_t total = 0;
  if (num_blocks < 1 ||
      __builtin_mul_overflow(store.block_bytes_, static_cast<size_t>(num_blocks), &total)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "a KV store of {} blocks of {} bytes was asked for, but the number must be at "
        "least 1 and the total must fit in memory",
        num_blocks, store.block_bytes_);
  }
  store.num_blocks_ = num_blocks;
  store.backend_ = &backend;
  store.memory_ = TRY(backend.allocate(total, MemoryUse::kKv));
  for (const CachePlace& place : layout.places) {
    Layer& layer = store.layers_.emplace_back();
    layer.policy = place.policy;
    for (const CachePiece& piece : place.pieces) {
      DevicePtr<std::byte> base = store.block(0) + static_cast<ptrdiff_t>(piece.offset);
      for (const KvPlane& plane : piece.planes) {
        layer.planes.push_back({plane, base, store.block_bytes_, piece.column});
        base += static_cast<ptrdiff_t>(cache_plane_bytes(plane, place.policy, backend));
      }
    }
  }
  return store;
}

const KvStore::Layer& KvStore::at(int layer_idx) const {
  const auto idx = static_cast<size_t>(layer_idx);
  CHECK(idx < layers_.size() && !layers_[idx].planes.empty(), "layer {} keeps nothing", layer_idx);
  return layers_[idx];
}

KvLayer KvStore::layer(int layer_idx) {
  const Layer& layer = at(layer_idx);
  CHECK(layer.planes.size() == 2, "layer {} keeps {} planes", layer_idx, layer.planes.size());
  const KvPlane& keys = layer.planes[0].plane;
  const KvPlane& values = layer.planes[1].plane;
  CHECK(
      keys.type == values.type && keys.num_heads == values.num_heads && keys.width == values.width,
      "keys and values of layer {} differ", layer_idx);
  return {{keys.type, keys.num_heads, keys.width},
          layer.planes[0].base,
          block_bytes_,
          layer.planes[0].table};
}

KvPlaneView KvStore::plane(int layer_idx, int plane_idx) {
  const Layer& layer = at(layer_idx);
  const auto idx = static_cast<size_t>(plane_idx);
  CHECK(idx < layer.planes.size(), "plane {} of {}", plane_idx, layer.planes.size());
  return layer.planes[idx];
}

std::span<const KvPlaneView> KvStore::state(int layer_idx) const {
  const Layer& layer = at(layer_idx);
  CHECK(layer.policy == CachePolicy::kState, "layer {} has no state", layer_idx);
  return layer.planes;
}

DevicePtr<std::byte> KvStore::block(int32_t block_id) {
  CHECK(block_id >= 0 && block_id < num_blocks_, "block {} of {}", block_id, num_blocks_);
  return memory_.data() + static_cast<ptrdiff_t>(static_cast<size_t>(block_id) * block_bytes_);
}

void KvStore::copy_block(int32_t from, int32_t to) {
  if (from != to) backend_->copy(block(from), block(to), block_bytes_);
}

void KvStore::read_block(int32_t block_id, std::span<std::byte> to) {
  CHECK(to.size() == block_bytes_, "{} bytes for a block of {}", to.size(), block_bytes_);
  backend_->download(DevicePtr<const std::byte>(block(block_id)), to);
}

void KvStore::write_block(int32_t block_id, std::span<const std::byte> from) {
  CHECK(from.size() == block_bytes_, "{} bytes for a block of {}", from.size(), block_bytes_);
  backend_->upload(from, block(block_id));
}

int64_t KvStore::num_pieces(int64_t num_blocks) const {
  const size_t num_bytes = static_cast<size_t>(num_blocks) * block_bytes_;
  return static_cast<int64_t>((num_bytes + kPieceBytes - 1) / kPieceBytes);
}

void KvStore::touch_piece(int64_t piece) {
  const size_t num_all = static_cast<size_t>(num_blocks_) * block_bytes_;
  CHECK(piece >= 0 && piece < num_pieces(num_blocks_), "piece {} of {}", piece,
        num_pieces(num_blocks_));
  const size_t first = static_cast<size_t>(piece) * kPieceBytes;
  backend_->touch(memory_.data() + static_cast<ptrdiff_t>(first),
                  std::min(kPieceBytes, num_all - first));
}

void KvStore::zero_block(int32_t block_id) { backend_->zero(block(block_id), block_bytes_); }

}  // namespace headrace
