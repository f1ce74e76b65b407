#include "engine/kv_cache.h"

#include <algorithm>
#include <bit>

namespace headrace {
namespace {

// Chain ids below kFirstChainId stand for "no block yet": a cache domain and a rope epoch. Ids of
// real prefixes start there.
constexpr uint64_t kFirstChainId = uint64_t{1} << 62;
constexpr int kEpochBits = 28;

bool is_root(uint64_t chain_id) { return chain_id < kFirstChainId; }

}  // namespace

uint64_t KvCache::root_of(uint64_t domain_id, int64_t rope_epoch) {
  CHECK(rope_epoch >= 0 && rope_epoch < (int64_t{1} << kEpochBits), "rope epoch {}", rope_epoch);
  CHECK(domain_id < kFirstChainId >> kEpochBits, "cache domain {}", domain_id);
  return (domain_id << kEpochBits) | static_cast<uint64_t>(rope_epoch);
}

KvCache::KvCache(int64_t num_blocks, const HashKey& key)
    : key_(key), next_chain_id_(kFirstChainId) {
  CHECK(num_blocks > 0 && num_blocks <= INT32_MAX, "num_blocks = {}", num_blocks);
  blocks_.resize(static_cast<size_t>(num_blocks));
  buckets_.assign(std::bit_ceil(static_cast<size_t>(num_blocks)), -1);
  free_.reserve(blocks_.size());
  // Low ids are taken first: a lightly used pool touches little memory.
  for (int64_t i = num_blocks - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

KvCache::Found KvCache::peek(std::span<const int32_t> tokens, uint64_t root) const {
  Found found{0, root};
  const int64_t max_blocks = (static_cast<int64_t>(tokens.size()) - 1) / kBlockTokens;
  while (found.num_blocks < max_blocks) {
    const int32_t block_id = find(found.chain_id, tokens.data() + found.num_blocks * kBlockTokens);
    if (block_id < 0) break;
    found.chain_id = at(block_id).chain_id;
    ++found.num_blocks;
  }
  return found;
}

int64_t KvCache::match(std::span<const int32_t> tokens, uint64_t root, BlockTable* table) {
  CHECK(table->blocks.empty() && table->num_published == 0);
  table->chain_id = root;
  const int64_t max_blocks = (static_cast<int64_t>(tokens.size()) - 1) / kBlockTokens;
  while (table->num_published < max_blocks) {
    const int32_t block_id =
        find(table->chain_id, tokens.data() + table->num_published * kBlockTokens);
    if (block_id < 0) break;
    hold(block_id);
    table->blocks.push_back(block_id);
    table->chain_id = at(block_id).chain_id;
    ++table->num_published;
  }
  return table->num_published * kBlockTokens;
}

bool KvCache::reserve(int64_t num_tokens, BlockTable* table) {
  const int64_t missing = blocks_for(num_tokens) - static_cast<int64_t>(table->blocks.size());
  if (missing > num_available()) return false;
  for (int64_t i = 0; i < missing; ++i) table->blocks.push_back(take());
  return true;
}

void KvCache::commit(std::span<const int32_t> tokens, int64_t num_computed, uint64_t root,
                     BlockTable* table) {
  CHECK(table->covers(num_computed) && num_computed <= static_cast<int64_t>(tokens.size()),
        "{} computed, {} blocks, {} tokens", num_computed, table->blocks.size(), tokens.size());
  if (table->num_published == 0) table->chain_id = root;
  while ((table->num_published + 1) * kBlockTokens <= num_computed) {
    int32_t& block_id = table->blocks[static_cast<size_t>(table->num_published)];
    const int32_t* block_tokens = tokens.data() + table->num_published * kBlockTokens;
    const int32_t same = find(table->chain_id, block_tokens);
    if (same < 0) {
      publish(*table, block_tokens);
    } else {  // another sequence computed the same at the same time: one copy is enough
      hold(same);
      drop(block_id);
      block_id = same;
    }
    table->chain_id = at(block_id).chain_id;
    ++table->num_published;
  }
}

void KvCache::rollback(int64_t num_tokens, BlockTable* table) {
  const int64_t keep = blocks_for(num_tokens);
  CHECK(keep >= table->num_published, "rollback to {} blocks, {} are published", keep,
        table->num_published);
  while (static_cast<int64_t>(table->blocks.size()) > keep) {
    drop(table->blocks.back());
    table->blocks.pop_back();
  }
}

void KvCache::release(BlockTable* table) {
  // Last block first: when space is needed, the end of a prefix goes before its beginning.
  while (!table->blocks.empty()) {
    drop(table->blocks.back());
    table->blocks.pop_back();
  }
  table->num_published = 0;
  table->chain_id = 0;
}

void KvCache::discard(BlockTable* table) {
  for (const int32_t block_id : table->blocks) {
    Block& block = at(block_id);
    if (block.published && block.writer_id != table->writer_id) continue;
    if (block.published) unpublish(block_id);
    block.tainted = true;
  }
  release(table);
}

int64_t KvCache::longest_chain() const {
  int64_t longest = 0;
  for (int32_t block_id : buckets_) {
    int64_t length = 0;
    for (; block_id >= 0; block_id = at(block_id).next_in_bucket) ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

size_t KvCache::bucket_of(uint64_t parent_id, const int32_t* tokens) const {
  KeyedHash hash(key_);
  hash.add(parent_id);
  for (int i = 0; i < kBlockTokens; i += 2) {
    hash.add(uint64_t{static_cast<uint32_t>(tokens[i])} << 32 |
             static_cast<uint32_t>(tokens[i + 1]));
  }
  return static_cast<size_t>(hash.finish()) & (buckets_.size() - 1);
}

int32_t KvCache::find(uint64_t parent_id, const int32_t* tokens) const {
  int32_t block_id = buckets_[bucket_of(parent_id, tokens)];
  while (block_id >= 0) {
    const Block& block = at(block_id);
    if (block.parent_id == parent_id &&
        std::equal(block.tokens.begin(), block.tokens.end(), tokens)) {
      return block_id;
    }
    block_id = block.next_in_bucket;
  }
  return -1;
}

// The first block of the table that is not published yet.
void KvCache::publish(const BlockTable& table, const int32_t* tokens) {
  const int32_t block_id = table.blocks[static_cast<size_t>(table.num_published)];
  const uint64_t parent_id = table.chain_id;
  Block& block = at(block_id);
  CHECK(!block.published && block.num_holders == 1, "block {} has {} holders", block_id,
        block.num_holders);
  block.published = true;
  block.parent_id = parent_id;
  block.writer_id = table.writer_id;
  if (is_root(parent_id)) domains_.hold(parent_id >> kEpochBits);
  block.chain_id = next_chain_id_++;
  std::copy_n(tokens, kBlockTokens, block.tokens.begin());
  int32_t& head = buckets_[bucket_of(parent_id, tokens)];
  block.next_in_bucket = head;
  head = block_id;
}

void KvCache::unpublish(int32_t block_id) {
  Block& block = at(block_id);
  int32_t* link = &buckets_[bucket_of(block.parent_id, block.tokens.data())];
  while (*link != block_id) {
    CHECK(*link >= 0, "block {} is not in the index", block_id);
    link = &at(*link).next_in_bucket;
  }
  *link = block.next_in_bucket;
  block.next_in_bucket = -1;
  block.published = false;
  if (is_root(block.parent_id)) domains_.drop(block.parent_id >> kEpochBits);
}

int32_t KvCache::take() {
  int32_t block_id = -1;
  if (!free_.empty()) {
    block_id = free_.back();
    free_.pop_back();
    num_touched_ = std::max<int64_t>(num_touched_, block_id + 1);
  } else {
    block_id = oldest_;
    CHECK(block_id >= 0, "no block is available");
    remove_cached(block_id);
    unpublish(block_id);
  }
  at(block_id).num_holders = 1;
  return block_id;
}

void KvCache::hold(int32_t block_id) {
  if (at(block_id).num_holders++ == 0) remove_cached(block_id);
}

void KvCache::drop(int32_t block_id) {
  Block& block = at(block_id);
  CHECK(block.num_holders > 0, "block {} is released twice", block_id);
  if (--block.num_holders > 0) return;
  if (std::exchange(block.tainted, false)) tainted_.push_back(block_id);
  if (block.published) {
    push_cached(block_id);
  } else {
    free_.push_back(block_id);
  }
}

void KvCache::push_cached(int32_t block_id) {
  Block& block = at(block_id);
  block.older = newest_;
  block.newer = -1;
  (newest_ >= 0 ? at(newest_).newer : oldest_) = block_id;
  newest_ = block_id;
  ++num_cached_;
}

void KvCache::remove_cached(int32_t block_id) {
  Block& block = at(block_id);
  (block.older >= 0 ? at(block.older).newer : oldest_) = block.newer;
  (block.newer >= 0 ? at(block.newer).older : newest_) = block.older;
  block.older = block.newer = -1;
  --num_cached_;
}

Status KvCache::check(std::span<const BlockTable* const> holders) const {
  std::vector<int32_t> held(blocks_.size(), 0);
  for (const BlockTable* table : holders) {
    for (const int32_t block_id : table->blocks) ++held[static_cast<size_t>(block_id)];
  }
  std::vector<int32_t> seen(blocks_.size(), 0);  // times on the free list or the cached list
  for (const int32_t block_id : free_) {
    ++seen[static_cast<size_t>(block_id)];
    if (at(block_id).published)
      return make_error(ErrorCode::kInternal, "free block {} is published", block_id);
  }
  int64_t num_listed = 0;
  for (int32_t i = oldest_; i >= 0; i = at(i).newer, ++num_listed) {
    ++seen[static_cast<size_t>(i)];
    if (!at(i).published)
      return make_error(ErrorCode::kInternal, "cached block {} is not published", i);
  }
  if (num_listed != num_cached_) {
    return make_error(ErrorCode::kInternal, "{} blocks are listed as cached, {} counted",
                      num_listed, num_cached_);
  }
  for (int32_t i = 0; i < static_cast<int32_t>(blocks_.size()); ++i) {
    const Block& block = at(i);
    if (block.num_holders != held[static_cast<size_t>(i)]) {
      return make_error(ErrorCode::kInternal, "block {} counts {} holders, {} tables hold it", i,
                        block.num_holders, held[static_cast<size_t>(i)]);
    }
    if (seen[static_cast<size_t>(i)] != (block.num_holders == 0 ? 1 : 0)) {
      return make_error(ErrorCode::kInternal, "block {} with {} holders is listed {} times", i,
                        block.num_holders, seen[static_cast<size_t>(i)]);
    }
    const bool found = block.published && find(block.parent_id, block.tokens.data()) == i;
    if (block.published != found) {
      return make_error(ErrorCode::kInternal, "published block {} is not found by its tokens", i);
    }
  }
  return {};
}

}  // namespace headrace
