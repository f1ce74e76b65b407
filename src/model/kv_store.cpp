#include "model/kv_store.h"

#include <cstring>
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

Result<KvStore> KvStore::create(const Backend& backend, std::vector<KvShape> layers,
                                int64_t num_blocks) {
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
  store.memory_ = TRY(Buffer::allocate(total));
  return store;
}

KvLayer KvStore::layer(int layer_idx) {
  const auto idx = static_cast<size_t>(layer_idx);
  CHECK(idx < shapes_.size(), "layer {} of {}", layer_idx, shapes_.size());
  return {shapes_[idx], memory_.data() + layer_offset_[idx], block_bytes_};
}

void KvStore::copy_block(int32_t from, int32_t to) {
  CHECK(from >= 0 && from < num_blocks_ && to >= 0 && to < num_blocks_, "{} to {} of {}", from, to,
        num_blocks_);
  if (from == to) return;
  std::memcpy(memory_.data() + static_cast<size_t>(to) * block_bytes_,
              memory_.data() + static_cast<size_t>(from) * block_bytes_, block_bytes_);
}

}  // namespace headrace
