// KvCache: who holds which KV block. Policy over block ids; the bytes are in model/kv_store.h.
//
// A sequence has a table with a column of blocks for each column of each cache group
// (model/cache_groups.h); all blocks come from one pool. Blocks that are full and computed are
// published under the name of their prefix (engine/prefix_index.h) and shared: bytes are a function
// of that name alone, so a hit gives the same bits as computing again. A hit is the longest prefix
// of which every group holds what its next token sees: all blocks, those of the window, the state
// at its end. Two sequences that compute the same block at once end with one copy.
//
// What a sequence leaves stays findable until the block is needed; engine/evictor.h says which goes
// first, by what the cache knows of their worth: whether somebody came back for them, whether they
// follow what somebody came back for, whether they were evicted too early, what their request asks
// for. A window group leaves blocks as they go out of sight. At the end of a sequence the blocks of
// windows and states are left first, then the others from the last to the first, so that of a
// prefix the beginning lives longest. Nothing allocates after construction but tables and lists of
// a plan. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/block_pool.h"
#include "engine/block_table.h"
#include "engine/evicted_names.h"
#include "engine/kv_events.h"
#include "engine/kv_tier.h"
#include "engine/prefix_index.h"
#include "model/cache_groups.h"

namespace headrace {

struct KvCacheOptions {
  int64_t num_blocks = 0;
  std::vector<CacheRule> rules = {CacheRule{}};  // of the groups; their columns in this order
  int64_t max_chunk = 512;                       // tokens of one sequence in one step
  HashKey key = {};               // of names; a secret where prompts come from strangers
  std::string numerics;           // names the arithmetic: fixed for a store
  KvEventSink* events = nullptr;  // null, or outlives the cache
  KvTier* tier = nullptr;         // null, or outlives the cache
  EvictionRule eviction = {};
};

// The bytes of a block. Without a block to write to, they go to the tier's slot; without one to
// read from, they come from there.
struct BlockCopy {
  int32_t from = -1, to = -1;
  int32_t slot = -1;
};

class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);

  Digest root(const PrefixRoot& root) const { return index_.root(root); }
  // The name of a prefix whose last kBlockTokens tokens these are.
  Digest extend(const Digest& parent, const int32_t* tokens) const {
    return index_.extend(parent, tokens);
  }
  // Decides how long blocks are kept for who asks for it.
  void set_time(TimeUs now) {
    now_ = now;
    pool_.evictor().set_time(now);
  }
  // An empty table becomes that of a sequence: what it computes belongs to this root.
  void begin(const Digest& root, int64_t num_prompt, BlockTable* table);
  // Puts the longest cached prefix of tokens into a table that was just begun, and holds it.
  // Returns its tokens: a multiple of kBlockTokens, always less than tokens.size(), so that
  // something is left to compute.
  int64_t match(std::span<const int32_t> tokens, BlockTable* table);
  // What match() would find.
  struct Found {
    int64_t num_blocks = 0;
    Digest name;
  };
  // Whether a prefix was cached until lately.
  bool was_evicted(const Digest& name) const { return evicted_.contains(name); }
  // Where blocks are looked for: in the pool, in the tier's memory too, in all of the tier.
  enum class Reach : uint8_t { kPool, kMemory, kTier };
  Found peek(std::span<const int32_t> tokens, const Digest& root, Reach reach = Reach::kPool) const;
  // Takes positions of the block after the matched ones from another table: both sequences have the
  // same num_common first tokens. The other's block is copied (take_copies()), both go on alone.
  // Returns the tokens that are computed then, maybe no more than before: when the other has
  // computed none of them, blocks are short, or there is state, which exists at one position only.
  int64_t fork(const BlockTable& from, int64_t num_common, BlockTable* table);
  // The same from the cache: a whole block of which all but the last token are wanted, or the end
  // that keep_end() left, as far as it has the same tokens.
  int64_t fork_cached(std::span<const int32_t> tokens, BlockTable* table);
  // Whether a table can go on from another one: both sequences have the same num_common first
  // tokens, all that the other has computed (windows and states are there), or more of a cache that
  // holds all positions. Not when whole blocks of them are unpublished.
  bool can_branch(const BlockTable& from, int64_t num_common) const;
  // Blocks that branch() and then reserve(num_tokens) take.
  int64_t missing_of_branch(int64_t num_common, int64_t num_tokens) const;
  // A table that was just begun gets these tokens: it holds the same whole blocks, and copies
  // (take_copies()) of those that the last of the tokens are in. Needs can_branch() and blocks for
  // the copies.
  void branch(const BlockTable& from, int64_t num_common, BlockTable* table);
  // What the tier holds deeper than in memory of the longest prefix that pool and tier have, and by
  // how many tokens it is longer than what the pool has. Points into tokens.
  struct Deeper {
    std::vector<TierBlock> blocks;
    int64_t num_tokens = 0;
  };
  Deeper find_deeper(std::span<const int32_t> tokens, const Digest& root) const;
  // After match(): the longest prefix with what the tier has in memory, put into blocks of the
  // pool. Returns the tokens that are computed then, no fewer than before.
  int64_t restore(std::span<const int32_t> tokens, BlockTable* table);
  // Copies of whole blocks, to be done in this order before the next step runs and after blocks
  // from take_tainted() are wiped. Those that a commit has made may be done at once.
  std::vector<BlockCopy> take_copies() { return std::exchange(copies_, {}); }

  // Blocks that reserve() would take. 0: a chunk of at most max_chunk of the next tokens, up to
  // num_tokens, can be computed. The last num_guesses of them may be taken back.
  int64_t missing(int64_t num_tokens, const BlockTable& table, int64_t num_guesses = 0) const;
  bool covers(int64_t num_tokens, const BlockTable& table) const {
    return missing(num_tokens, table) == 0;
  }
  // False (and nothing changes) when too few blocks are available.
  bool reserve(int64_t num_tokens, BlockTable* table, int64_t num_guesses = 0);
  // Blocks that the sequence may still ask for until it has num_tokens, whatever others do.
  int64_t promised(int64_t num_tokens, const BlockTable& table) const;

  // How many of `count` next tokens one step may compute: it must end where state is kept.
  int64_t limit_chunk(int64_t count, const BlockTable& table) const;
  // Before the next `count` tokens and guesses after them are computed: gives state its places.
  void prepare(int64_t count, BlockTable* table, int64_t num_guesses = 0);
  // Positions up to `end` were computed, the last num_guesses of guesses, the first num_right of
  // these are right: how many count as computed. State exists before the guesses and after all of
  // them only: unless all are right, the right ones have to be computed again.
  int64_t verify(int64_t end, int64_t num_guesses, int64_t num_right, BlockTable* table);
  // The first num_computed positions are computed. Publishes each full block of them; where equal
  // content is published already, the table takes that block and frees its own. Gives back what no
  // later token sees.
  void commit(std::span<const int32_t> tokens, int64_t num_computed, BlockTable* table);
  // The same without publishing.
  void advance(int64_t num_computed, BlockTable* table);
  // Whether any computed tokens can be taken back: state exists at its last position only, and
  // before guesses while they are verified.
  bool can_roll_back() const { return !has_state_; }
  static bool can_roll_back(const std::vector<CacheRule>& rules);
  // Shrinks the table to cover num_tokens; published blocks stay.
  void rollback(int64_t num_tokens, BlockTable* table);
  // Before release: what is computed of the last block, if it is not full, stays findable for who
  // goes on from there. The last to do so after a prefix wins.
  void keep_end(std::span<const int32_t> tokens, BlockTable* table);
  // Empties the table. Published blocks become cached when nobody else holds them.
  void release(BlockTable* table);
  // As release, of a sequence that failed: what it wrote itself is tainted, not found again and to
  // be wiped. What it found stays.
  void discard(BlockTable* table);
  // Nothing that is cached now is found again. What sequences hold stays theirs.
  void reset();
  // Tainted blocks that their last holder left since the last call: to be wiped before the next
  // step writes to them.
  std::vector<int32_t> take_tainted() { return pool_.take_tainted(); }

  int num_columns() const { return static_cast<int>(columns_.size()); }
  const BlockPool& pool() const { return pool_; }
  const KvCacheOptions& options() const { return options_; }
  int64_t longest_chain() const { return index_.longest_chain(); }

  // Proves the books of pool and index, that each block's holders equal the tables given, and that
  // each table holds what its next token sees. kInternal with the first contradiction. O(blocks);
  // for tests.
  Status check(std::span<const BlockTable* const> holders) const;

 private:
  using Policy = CachePolicy;

  // Number of the first block that the token at position num_computed needs of a column.
  static int64_t first_needed(const CacheRule& rule, int64_t num_computed);
  // Number of blocks that a column must have so that tokens up to num_tokens can be computed next.
  int64_t needed_size(const CacheRule& rule, int64_t num_tokens, int64_t num_computed) const;
  static bool needs_ahead(const BlockTable& table, size_t column, int64_t num_tokens,
                          int64_t num_guesses);
  bool holds(int64_t num_blocks, std::span<const int64_t> runs) const;
  bool extend_runs(int32_t node, TierBlock block, Reach reach) const;
  bool keeps_state(int64_t num_tokens, const BlockTable& table) const;
  void take_copies_of(std::span<const int32_t> blocks, int64_t end, BlockTable* table);
  void forget_end(int32_t node);
  void unpublish(int32_t block_id);
  void tell_stored(const BlockTable& table, const Digest& name, const int32_t* tokens);
  void publish_block(const int32_t* tokens, int64_t num_computed, BlockTable* table);
  void drop(int32_t block_id) { pool_.drop(block_id, index_.contains(block_id)); }
  void drop_ahead(BlockTable* table);
  int32_t take();
  void offer(int32_t block_id, KeepReason reason);
  int32_t cached_block(int32_t node, int column) const {
    return node < 0 ? -1 : index_.block(node, column);
  }
  bool reaches(int32_t node, const TierBlock& block, Reach reach) const;
  bool hold_cached(int64_t num_blocks, BlockTable* table);
  bool restore_blocks(std::span<const int32_t> tokens, BlockTable* table);
  bool restore_block(const TierBlock& block, const BlockTable& table, int32_t* block_id);
  BlockWorth worth_of_new(const BlockTable& table) const;
  bool is_left(int64_t num_blocks) const;
  void value_found(const BlockTable& table);
  void value_written(const BlockTable& table, size_t column, const Digest& name);
  void value_left(const BlockTable& table);
  void refresh(BlockTable* table) const;
  Status check_table(const BlockTable& table) const;

  const KvCacheOptions options_;
  std::vector<CacheRule> columns_;  // the rule of each column
  bool has_full_ = false;           // a group of policy full: only what it holds can be found
  bool has_state_ = false;
  int event_column_ = 0;  // whose blocks stand for their prefix in events: the first that holds all
  BlockPool pool_;
  PrefixIndex index_;
  EvictedNames evicted_;
  TimeUs now_ = 0;
  std::vector<BlockCopy> copies_;
  // Scratch of peek(): by column, the blocks in a row that end the prefix; its nodes and names.
  mutable std::vector<int64_t> runs_;
  mutable std::vector<int32_t> path_;
  mutable std::vector<Digest> names_;
  std::vector<int32_t> sources_;  // of a fork, by column
};

}  // namespace headrace
