#include "engine/block_pool.h"

#include <algorithm>

namespace headrace {

BlockPool::BlockPool(int64_t num_blocks) {
  CHECK(num_blocks > 0 && num_blocks <= INT32_MAX, "num_blocks = {}", num_blocks);
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
  remove_cached(block_id);
  free_.push_back(block_id);
}

void BlockPool::hold(int32_t block_id) {
  if (at(block_id).num_holders++ == 0) remove_cached(block_id);
}

void BlockPool::drop(int32_t block_id, bool findable) {
  Block& block = at(block_id);
  CHECK(block.num_holders > 0, "block {} is released twice", block_id);
  if (--block.num_holders > 0) return;
  if (std::exchange(block.tainted, false)) tainted_.push_back(block_id);
  if (findable) {
    push_cached(block_id);
  } else {
    free_.push_back(block_id);
  }
}

void BlockPool::push_cached(int32_t block_id) {
  Block& block = at(block_id);
  block.cached = true;
  block.older = newest_;
  block.newer = -1;
  (newest_ >= 0 ? at(newest_).newer : oldest_) = block_id;
  newest_ = block_id;
  ++num_cached_;
}

void BlockPool::remove_cached(int32_t block_id) {
  Block& block = at(block_id);
  CHECK(block.cached, "block {} is not cached", block_id);
  (block.older >= 0 ? at(block.older).newer : oldest_) = block.newer;
  (block.newer >= 0 ? at(block.newer).older : newest_) = block.older;
  block.older = block.newer = -1;
  block.cached = false;
  --num_cached_;
}

Status BlockPool::check(std::span<const int32_t> holders) const {
  std::vector<int32_t> listed(blocks_.size(), 0);  // times on the free list or the cached list
  for (const int32_t block_id : free_) ++listed[static_cast<size_t>(block_id)];
  int64_t num_listed = 0;
  for (int32_t i = oldest_; i >= 0 && num_listed <= num_total(); i = at(i).newer, ++num_listed) {
    ++listed[static_cast<size_t>(i)];
    if (!at(i).cached) return make_error(ErrorCode::kInternal, "block {} is listed as cached", i);
  }
  if (num_listed != num_cached_) {
    return make_error(ErrorCode::kInternal, "{} blocks are listed as cached, {} counted",
                      num_listed, num_cached_);
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
