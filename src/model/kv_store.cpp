#include "model/kv_store.h"

#include <utility>

namespace headrace {
namespace {

constexpr size_t kAlignment = 64;

size_t layer_bytes(const Backend& backend, const KvShape& shape) {
  return (backend.kv_layer_bytes(shape) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

size_t KvStore::block_bytes(const Backend& backend, const std::vector<KvShape>& layers) {
  size_t bytes = 0;
  for (const KvShape& shape : layers) bytes += layer_bytes(backend, shape);
  return bytes;
}

Result<KvStore> KvStore::create(Backend& backend, std::vector<KvShape> layers, int64_t num_blocks) {
  KvStore store;
  for (const KvShape& shape : layers) {
    store.layer_offset_.push_back(store.block_bytes_);
    store.block_bytes_ += layer_bytes(backend, shape);
  }
  size_t total = 0;
  if (num_blocks < 1 ||
      __builtin_mul_overflow(store.block_bytes_, static_cast<size_t>(num_blocks), &total)) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "a KV store of {} blocks of {} bytes was asked for, but the number must be at "
        "least 1 and the total must fit in memory",
        num_blocks, store.block_bytes_);
  }
  store.shapes_ = std::move(layers);
  store.num_blocks_ = num_blocks;
  store.backend_ = &backend;
  store.memory_ = TRY(backend.allocate(total, MemoryUse::kKv));
  return store;
}

KvLayer KvStore::layer(int layer_idx) {
  const auto idx = static_cast<size_t>(layer_idx);
  CHECK(idx < shapes_.size(), "layer {} of {}", layer_idx, shapes_.size());
  return {shapes_[idx], memory_.data() + static_cast<ptrdiff_t>(layer_offset_[idx]), block_bytes_};
}

DevicePtr<std::byte> KvStore::block(int32_t block_id) {
  CHECK(block_id >= 0 && block_id < num_blocks_, "block {} of {}", block_id, num_blocks_);
  return memory_.data() + static_cast<ptrdiff_t>(static_cast<size_t>(block_id) * block_bytes_);
}

void KvStore::copy_block(int32_t from, int32_t to) {
  if (from != to) backend_->copy(block(from), block(to), block_bytes_);
}

void KvStore::zero_block(int32_t block_id) { backend_->zero(block(block_id), block_bytes_); }

}  // namespace headrace
