// How a beam goes on from another: the same whole blocks, copies of what both write to.
#include <algorithm>

#include "engine/kv_cache.h"

namespace headrace {

bool KvCache::can_branch(const BlockTable& from, int64_t num_common) const {
  if (num_common > from.num_computed || from.num_published < num_common / kBlockTokens)
    return false;
  if (num_common == from.num_computed) return true;
  return std::all_of(columns_.begin(), columns_.end(),
                     [](const CacheRule& rule) { return rule.policy == Policy::kFull; });
}

int64_t KvCache::missing_of_branch(int64_t num_common, int64_t num_tokens) const {
  const int64_t num_whole = num_common / kBlockTokens;
  int64_t missing = 0;
  for (const CacheRule& rule : columns_) {
    if (rule.policy == Policy::kState) {
      missing += (num_common % kBlockTokens != 0 ? 1 : 0) + (num_tokens > num_common ? 1 : 0);
    } else {
      missing += needed_size(rule, num_tokens, num_common) - num_whole;
    }
  }
  return missing;
}

void KvCache::branch(const BlockTable& from, int64_t num_common, BlockTable* table) {
  CHECK(table->num_computed == 0 && table->num_published == 0 && can_branch(from, num_common),
        "{} tokens of a table that has computed {} and published {} blocks", num_common,
        from.num_computed, from.num_published);
  const auto num_whole = static_cast<size_t>(num_common / kBlockTokens);
  const bool copies = num_common % kBlockTokens != 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const std::vector<int32_t>& source = from.columns[c].blocks;
    TableColumn& column = table->columns[c];
    for (size_t i = 0; i < num_whole; ++i) {
      const int32_t block_id = i < source.size() ? source[i] : -1;
      if (block_id >= 0) pool_.hold(block_id);
      column.blocks.push_back(block_id);
    }
    if (!copies) continue;
    copies_.push_back({source[num_whole], take()});
    column.blocks.push_back(copies_.back().to);
  }
  const auto whole = static_cast<ptrdiff_t>(num_whole);
  table->names.assign(from.names.begin(), from.names.begin() + whole);
  table->wrote.assign(from.wrote.begin(), from.wrote.begin() + whole);
  table->num_published = static_cast<int64_t>(num_whole);
  table->num_found = std::min(from.num_found, table->num_published);
  refresh(table);
  advance(num_common, table);
}

}  // namespace headrace
