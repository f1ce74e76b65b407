// What moves between the cache's blocks and the tier behind it.
#include "engine/kv_cache.h"

namespace headrace {

// The block is in the index. Ends that are not full stay behind.
void KvCache::offer(int32_t block_id, KeepReason reason) {
  if (options_.tier == nullptr) return;
  const int32_t node = index_.node_of(block_id);
  const std::span<const int32_t> tokens = index_.tokens(node);
  if (tokens.size() < kBlockTokens) return;
  const int32_t slot = options_.tier->keep(
      {index_.name(node), static_cast<int32_t>(index_.column(block_id)), tokens.data()}, reason);
  if (slot >= 0) copies_.push_back({block_id, -1, slot});
}

// Whether a block is within reach; its node, -1: nothing is cached under its name.
bool KvCache::reaches(int32_t node, const TierBlock& block, Reach reach) const {
  if (cached_block(node, block.column) >= 0) return true;
  if (reach == Reach::kPool || options_.tier == nullptr) return false;
  return reach == Reach::kMemory ? options_.tier->in_memory(block) : options_.tier->holds(block);
}

KvCache::Deeper KvCache::find_deeper(std::span<const int32_t> tokens, const Digest& root) const {
  Deeper deeper;
  if (options_.tier == nullptr) return deeper;
  const int64_t num_near = peek(tokens, root).num_blocks;
  const int64_t num_blocks = peek(tokens, root, Reach::kTier).num_blocks;
  if (num_blocks <= num_near) return deeper;
  deeper.num_tokens = (num_blocks - num_near) * kBlockTokens;
  for (int64_t i = 0; i < num_blocks; ++i) {
    const auto idx = static_cast<size_t>(i);
    for (int32_t c = 0; c < num_columns(); ++c) {
      const CacheRule& rule = columns_[static_cast<size_t>(c)];
      const TierBlock block{names_[idx], c, tokens.data() + i * kBlockTokens};
      const bool is_needed = i >= first_needed(rule, num_blocks * kBlockTokens);
      if (is_needed && !reaches(path_[idx], block, Reach::kMemory)) deeper.blocks.push_back(block);
    }
  }
  return deeper;
}

int64_t KvCache::restore(std::span<const int32_t> tokens, BlockTable* table) {
  if (options_.tier == nullptr) return table->num_computed;
  const int64_t num_blocks = peek(tokens, table->root, Reach::kMemory).num_blocks;
  if (num_blocks <= table->num_published) return table->num_computed;
  BlockTable empty;
  empty.retention = table->retention;
  empty.owner = table->owner;
  begin(table->root, table->num_prompt, &empty);
  release(table);
  *table = empty;
  refresh(table);
  if (hold_cached(num_blocks, table) && restore_blocks(tokens, table)) {
    refresh(table);
    return table->num_computed;
  }
  for (TableColumn& column : table->columns) {
    for (const int32_t block_id : column.blocks) {
      if (block_id >= 0) drop(block_id);
    }
  }
  *table = empty;
  refresh(table);
  return match(tokens, table);
}

// Of the prefix that was looked for last, so many blocks: holds what is cached of what its next
// token sees. False: there are not blocks enough for the rest.
bool KvCache::hold_cached(int64_t num_blocks, BlockTable* table) {
  const int64_t num_tokens = num_blocks * kBlockTokens;
  int64_t num_missing = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    TableColumn& column = table->columns[c];
    column.first = first_needed(columns_[c], num_tokens);
    column.blocks.assign(static_cast<size_t>(num_blocks), -1);
    for (auto i = static_cast<size_t>(column.first); i < column.blocks.size(); ++i) {
      const int32_t block_id = cached_block(path_[i], static_cast<int>(c));
      num_missing += block_id < 0 ? 1 : 0;
      if (block_id >= 0) pool_.hold(block_id);
      column.blocks[i] = block_id;
    }
  }
  table->wrote.assign(static_cast<size_t>(num_blocks), false);
  table->names.assign(names_.begin(), names_.begin() + num_blocks);
  table->num_published = table->num_found = num_blocks;
  table->num_computed = num_tokens;
  return num_missing <= pool_.num_available();
}

// What hold_cached() has left open. False: the tier's memory has lost it meanwhile.
bool KvCache::restore_blocks(std::span<const int32_t> tokens, BlockTable* table) {
  const int64_t num_blocks = std::exchange(table->num_published, 0);
  for (; table->num_published < num_blocks; ++table->num_published) {
    const auto i = static_cast<size_t>(table->num_published);
    TierBlock block{table->names[i], 0, tokens.data() + i * kBlockTokens};
    for (; block.column < num_columns(); ++block.column) {
      TableColumn& column = table->columns[static_cast<size_t>(block.column)];
      if (table->num_published < column.first || column.blocks[i] >= 0) continue;
      if (!restore_block(block, *table, &column.blocks[i])) return false;
    }
  }
  return true;
}

bool KvCache::restore_block(const TierBlock& block, const BlockTable& table, int32_t* block_id) {
  *block_id = take();  // what this evicts may push the wanted one out of the tier's memory
  const int32_t slot = options_.tier->find(block);
  if (slot < 0) return false;
  copies_.push_back({-1, *block_id, slot});
  int32_t node = index_.find(block.name, block.tokens);
  if (node < 0) node = index_.add(block.name, {block.tokens, kBlockTokens});
  index_.attach(node, block.column, *block_id);
  value_written(table, static_cast<size_t>(block.column), block.name);
  if (block.column == event_column_) tell_stored(table, block.name, block.tokens);
  return true;
}

}  // namespace headrace
