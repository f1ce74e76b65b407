// KvCache: who holds which KV block. Policy over block ids; the bytes are in model/kv_store.h.
//
// A block holds kBlockTokens positions of one sequence. It is free, used (held by at least one
// table) or cached (held by none, but findable by its tokens until it is needed). Finished blocks
// of equal prefixes are shared: K and V are a function of the tokens before them and the rope epoch
// alone, so a hit gives the same bits as computing again. The index is exact: it compares tokens
// and the identity of the parent block, never hashes alone. Eviction takes the least recently
// released block, O(1). Nothing allocates after construction, tables apart. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace headrace {

inline int64_t blocks_for(int64_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

// The blocks of one sequence: blocks[i] holds positions [16 i, 16 i + 16). Changed by KvCache only.
struct BlockTable {
  std::vector<int32_t> blocks;
  int64_t num_published = 0;  // leading blocks that are full, computed and known to the index
  uint64_t chain_id = 0;      // identity of the last published block's prefix

  bool covers(int64_t num_tokens) const {
    return static_cast<int64_t>(blocks.size()) >= blocks_for(num_tokens);
  }
};

class KvCache {
 public:
  explicit KvCache(int64_t num_blocks);

  // Puts the longest cached prefix of tokens into an empty table and holds it. Returns its tokens:
  // a multiple of kBlockTokens, always less than tokens.size(), so that something is left to
  // compute.
  int64_t match(std::span<const int32_t> tokens, int64_t rope_epoch, BlockTable* table);
  // Grows the table to cover num_tokens. False (and nothing changes) when too few blocks are
  // available.
  bool reserve(int64_t num_tokens, BlockTable* table);
  // Publishes every full block among the first num_computed positions.
  void commit(std::span<const int32_t> tokens, int64_t num_computed, int64_t rope_epoch,
              BlockTable* table);
  // Shrinks the table to cover num_tokens; published blocks stay.
  void rollback(int64_t num_tokens, BlockTable* table);
  // Empties the table. Published blocks become cached when nobody else holds them.
  void release(BlockTable* table);
  // As release, but nothing of it is found again: its contents are not to be trusted. Appends the
  // blocks that nobody holds any more.
  void discard(BlockTable* table, std::vector<int32_t>* freed);

  int64_t num_total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_used() const { return num_total() - num_free() - num_cached_; }
  int64_t num_available() const { return num_free() + num_cached_; }

  // Proves free + used + cached = total, each block's holders equal the tables given, the index
  // finds exactly the published blocks. kInternal with the first contradiction. O(blocks); for
  // tests.
  Status check(std::span<const BlockTable* const> holders) const;

 private:
  struct Block {
    int32_t num_holders = 0;
    bool published = false;
    uint64_t parent_id = 0;  // chain id of the prefix before this block
    uint64_t chain_id = 0;   // of the prefix that ends with this block; unique for ever
    std::array<int32_t, kBlockTokens> tokens{};
    int32_t next_in_bucket = -1;     // index chain
    int32_t older = -1, newer = -1;  // list of cached blocks
  };

  Block& at(int32_t block_id) { return blocks_[static_cast<size_t>(block_id)]; }
  const Block& at(int32_t block_id) const { return blocks_[static_cast<size_t>(block_id)]; }
  size_t bucket_of(uint64_t parent_id, const int32_t* tokens) const;
  int32_t find(uint64_t parent_id, const int32_t* tokens) const;
  void publish(int32_t block_id, uint64_t parent_id, const int32_t* tokens);
  void unpublish(int32_t block_id);
  int32_t take();
  void hold(int32_t block_id);
  void drop(int32_t block_id);
  void push_cached(int32_t block_id);
  void remove_cached(int32_t block_id);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;          // taken from the back
  std::vector<int32_t> buckets_;       // first block of each index chain, -1: none
  int32_t oldest_ = -1, newest_ = -1;  // cached blocks by time of release
  int64_t num_cached_ = 0;
  uint64_t next_chain_id_;
};

}  // namespace headrace
