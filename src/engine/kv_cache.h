// KvCache: who holds which KV block. Policy over block ids; the bytes are in model/kv_store.h.
//
// A block holds kBlockTokens positions of one sequence. It is free, used (held by at least one
// table) or cached (held by none, but findable by its tokens until it is needed). Finished blocks
// of equal prefixes are shared: K and V are a function of the tokens before them and the rope epoch
// alone, so a hit gives the same bits as computing again. Sharing stays inside a cache domain. The
// index is exact: it compares tokens and the identity of the parent block, never hashes alone; its
// hash is keyed, so that no prompt can choose its bucket. Eviction takes the least recently
// released block, O(1). Nothing allocates after construction, tables and names of domains apart.
// Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/cache_domains.h"
#include "engine/keyed_hash.h"

namespace headrace {

inline int64_t blocks_for(int64_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

// The blocks of one sequence: blocks[i] holds positions [16 i, 16 i + 16). Changed by KvCache only.
struct BlockTable {
  std::vector<int32_t> blocks;
  int64_t num_published = 0;  // leading blocks that are full, computed and known to the index
  uint64_t chain_id = 0;      // identity of the last published block's prefix
  uint64_t writer_id = 0;     // whose table this is: blocks remember who wrote them

  bool covers(int64_t num_tokens) const {
    return static_cast<int64_t>(blocks.size()) >= blocks_for(num_tokens);
  }
};

class KvCache {
 public:
  explicit KvCache(int64_t num_blocks, const HashKey& key = {});

  // A domain is opened by each sequence of that name and closed when the sequence ends.
  uint64_t open_domain(const std::string& name) { return domains_.open(name); }
  void close_domain(uint64_t domain_id) { domains_.drop(domain_id); }
  // The identity of "no block yet": prefixes of different roots never meet.
  static uint64_t root_of(uint64_t domain_id, int64_t rope_epoch);

  // Puts the longest cached prefix of tokens into an empty table and holds it. Returns its tokens:
  // a multiple of kBlockTokens, always less than tokens.size(), so that something is left to
  // compute.
  int64_t match(std::span<const int32_t> tokens, uint64_t root, BlockTable* table);
  // What match() would find.
  struct Found {
    int64_t num_blocks = 0;
    uint64_t chain_id = 0;
  };
  Found peek(std::span<const int32_t> tokens, uint64_t root) const;
  // Grows the table to cover num_tokens. False (and nothing changes) when too few blocks are
  // available.
  bool reserve(int64_t num_tokens, BlockTable* table);
  // Publishes every full block among the first num_computed positions. Where equal content is
  // published already, the table takes that block and frees its own.
  void commit(std::span<const int32_t> tokens, int64_t num_computed, uint64_t root,
              BlockTable* table);
  // Shrinks the table to cover num_tokens; published blocks stay.
  void rollback(int64_t num_tokens, BlockTable* table);
  // Empties the table. Published blocks become cached when nobody else holds them.
  void release(BlockTable* table);
  // As release, of a sequence that failed: what it wrote itself is tainted, not found again and to
  // be wiped. What it found stays.
  void discard(BlockTable* table);
  // Tainted blocks that their last holder left since the last call: to be wiped before the next
  // step writes to them.
  std::vector<int32_t> take_tainted() { return std::exchange(tainted_, {}); }

  int64_t num_touched() const { return num_touched_; }  // held at some time: the system backs them
  int64_t num_total() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_used() const { return num_total() - num_free() - num_cached_; }
  int64_t num_available() const { return num_free() + num_cached_; }
  size_t num_domains() const { return domains_.size(); }
  // Blocks of the fullest bucket of the index: what the slowest look-up passes. O(blocks); for
  // tests.
  int64_t longest_chain() const;

  // Proves free + used + cached = total, each block's holders equal the tables given, the index
  // finds exactly the published blocks. kInternal with the first contradiction. O(blocks); for
  // tests.
  Status check(std::span<const BlockTable* const> holders) const;

 private:
  struct Block {
    int32_t num_holders = 0;
    bool published = false;
    bool tainted = false;    // while it is held
    uint64_t writer_id = 0;  // of the table that published it
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
  void publish(const BlockTable& table, const int32_t* tokens);
  void unpublish(int32_t block_id);
  int32_t take();
  void hold(int32_t block_id);
  void drop(int32_t block_id);
  void push_cached(int32_t block_id);
  void remove_cached(int32_t block_id);

  const HashKey key_;
  CacheDomains domains_;  // held by sequences, and by published blocks that follow a root
  std::vector<Block> blocks_;
  std::vector<int32_t> free_;          // taken from the back
  std::vector<int32_t> tainted_;       // for take_tainted
  std::vector<int32_t> buckets_;       // first block of each index chain, -1: none
  int32_t oldest_ = -1, newest_ = -1;  // cached blocks by time of release
  int64_t num_cached_ = 0;
  int64_t num_touched_ = 0;
  uint64_t next_chain_id_;
};

}  // namespace headrace
