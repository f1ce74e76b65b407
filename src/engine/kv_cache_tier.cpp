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

std::vector<TierBlock> KvCache::deeper_blocks(std::span<const int32_t> tokens,
                                              const Digest& root) const {
  std::vector<TierBlock> blocks;
  if (options_.tier == nullptr) return blocks;
  const Found found = peek(tokens, root);
  Digest name = found.name;
  const int64_t max_blocks = (std::ssize(tokens) - 1) / kBlockTokens;
  for (int64_t n = found.num_blocks; n < max_blocks; ++n) {
    const int32_t* block_tokens = tokens.data() + n * kBlockTokens;
    name = index_.extend(name, block_tokens);
    const int32_t node = index_.find(name, block_tokens);
    for (int32_t column = 0; column < num_columns(); ++column) {
      if (cached_block(node, column) >= 0) continue;
      const TierBlock block{name, column, block_tokens};
      if (!options_.tier->holds(block)) return blocks;
      if (!options_.tier->in_memory(block)) blocks.push_back(block);
    }
  }
  return blocks;
}

int64_t KvCache::restore(std::span<const int32_t> tokens, BlockTable* table) {
  if (options_.tier == nullptr) return table->num_computed;
  const int64_t max_blocks = (std::ssize(tokens) - 1) / kBlockTokens;
  while (table->num_published < max_blocks &&
         restore_block(tokens.data() + table->num_published * kBlockTokens, table)) {
  }
  refresh(table);
  return table->num_computed;
}

// The next block of a table whose blocks are all published.
bool KvCache::restore_block(const int32_t* tokens, BlockTable* table) {
  const Digest name = index_.extend(table->name(table->num_published), tokens);
  int32_t node = index_.find(name, tokens);
  if (pool_.num_available() < num_columns()) return false;
  if (!restore_columns(node, {name, 0, tokens})) return false;
  if (node < 0) node = index_.add(name, {tokens, kBlockTokens});
  for (int column = 0; column < num_columns(); ++column) {
    const int32_t block_id = sources_[static_cast<size_t>(column)];
    table->columns[static_cast<size_t>(column)].blocks.push_back(block_id);
    if (index_.contains(block_id)) continue;
    index_.attach(node, column, block_id);
    if (column == event_column_) tell_stored(*table, name, tokens);
  }
  table->wrote.push_back(false);
  table->names.push_back(name);
  ++table->num_published;
  table->num_computed += kBlockTokens;
  return true;
}

// Holds a block for each column in sources_, cached or brought from the tier; or none.
bool KvCache::restore_columns(int32_t node, const TierBlock& first) {
  TierBlock block = first;
  sources_.clear();
  for (block.column = 0; block.column < num_columns(); ++block.column) {
    const int32_t cached = cached_block(node, block.column);
    if (cached < 0 && !options_.tier->in_memory(block)) return false;
    sources_.push_back(cached);
  }
  for (const int32_t block_id : sources_) {
    if (block_id >= 0) pool_.hold(block_id);  // not to be taken meanwhile
  }
  bool found_all = true;
  for (block.column = 0; block.column < num_columns(); ++block.column) {
    int32_t& block_id = sources_[static_cast<size_t>(block.column)];
    if (block_id >= 0) continue;
    block_id = take();  // what this evicts may push the wanted one out of the tier's memory
    const int32_t slot = options_.tier->find(block);
    found_all = found_all && slot >= 0;
    if (slot >= 0) copies_.push_back({-1, block_id, slot});
  }
  if (found_all) return true;
  for (const int32_t block_id : sources_) drop(block_id);
  return false;
}

}  // namespace headrace
