#include "engine/block_pool.h"

#include <algorithm>

namespace headrace {

namespace {

int64_t checked_count(int64_t num_blocks) {
  CHECK(num_blocks > 0 && num_blocks <= INT32_MAX, "num_blocks = {}", num_blocks);
  return num_blocks;
}

}  // namespace

BlockPool::BlockPool(int64_t num_blocks, const EvictionRule& rule)
    : evictor_(checked_count(num_blocks), rule) {
  blocks_.resize(static_cast<size_t>(num_blocks));
  free_.reserve(blocks_.size());
  // Low ids are taken first: a lightly used pool touches little memory.
  for (int64_t i = num_blocks - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

int32_t BlockPool::take_free() {
  if (free_.empty()) return -1;
  const int32_t block_id = free_.back();
  free_.pop_back();
  num_touched_ = std::max<int64_t>(num_touched_, int64_t{block_id} + 1);
  at(block_id).num_holders = 1;
  return block_id;
}

void BlockPool::forget(int32_t block_id) {
  evictor_.remove(block_id);
  evictor_.clear(block_id);
  free_.push_back(block_id);
}

void BlockPool::hold(int32_t block_id) {
  if (at(block_id).num_holders++ == 0) evictor_.remove(block_id);
}

void BlockPool::drop(int32_t block_id, bool findable) {
  Block& block = at(block_id);
  CHECK(block.num_holders > 0, "block {} is released twice", block_id);
  if (--block.num_holders > 0) return;
  if (std::exchange(block.tainted, false)) tainted_.push_back(block_id);
  if (findable) {
    evictor_.push(block_id);
  } else {
    evictor_.clear(block_id);
    free_.push_back(block_id);
  }
}

Status BlockPool::check(std::span<const int32_t> holders) const {
  std::vector<int32_t> listed(blocks_.size(), 0);  // times on the free list or the cached list
  for (const int32_t block_id : free_) ++listed[static_cast<size_t>(block_id)];
  const std::vector<int32_t> cached = evictor_.listed();
  for (const int32_t i : cached) {
    ++listed[static_cast<size_t>(i)];
    if (!is_cached(i)) return make_error(ErrorCode::kInternal, "block {} is listed as cached", i);
  }
  if (std::ssize(cached) != num_cached()) {
    return make_error(ErrorCode::kInternal, "{} blocks are listed as cached, {} counted",
                      cached.size(), num_cached());
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int32_t num_holders = blocks_[i].num_holders;
    if (num_holders != holders[i]) {
      return make_error(ErrorCode::kInternal, "block {} counts {} holders, {} tables hold it", i,
                        num_holders, holders[i]);
    }
    if (listed[i] != (num_holders == 0 ? 1 : 0)) {
      return make_error(ErrorCode::kInternal, "block {} with {} holders is listed {} times", i,
                        num_holders, listed[i]);
    }
  }
  return {};
}

}  // namespace headrace
