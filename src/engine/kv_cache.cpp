#include "engine/kv_cache.h"

#include <algorithm>

namespace headrace {
namespace {

std::vector<CacheRule> rules_by_column(const std::vector<CacheRule>& rules) {
  std::vector<CacheRule> columns;
  for (const CacheRule& rule : rules) {
    columns.insert(columns.end(), static_cast<size_t>(rule.num_columns), rule);
  }
  CHECK(!columns.empty(), "a cache without groups");
  return columns;
}

bool has_policy(const std::vector<CacheRule>& rules, CachePolicy policy) {
  return std::any_of(rules.begin(), rules.end(),
                     [policy](const CacheRule& rule) { return rule.policy == policy; });
}

}  // namespace

bool KvCache::can_roll_back(const std::vector<CacheRule>& rules) {
  return !has_policy(rules, Policy::kState);
}

KvCache::KvCache(const KvCacheOptions& options)
    : options_(options),
      columns_(rules_by_column(options.rules)),
      has_full_(has_policy(options.rules, Policy::kFull)),
      has_state_(has_policy(options.rules, Policy::kState)),
      pool_(options.num_blocks, options.eviction),
      index_(options.num_blocks, static_cast<int>(columns_.size()), options.key, options.numerics),
      evicted_(options.num_blocks),
      runs_(columns_.size()) {
  CHECK(options.max_chunk > 0, "chunks of {} tokens", options.max_chunk);
  const auto full = std::find_if(columns_.begin(), columns_.end(), [](const CacheRule& rule) {
    return rule.policy == Policy::kFull;
  });
  event_column_ = full == columns_.end() ? 0 : static_cast<int>(full - columns_.begin());
}

int64_t KvCache::first_needed(const CacheRule& rule, int64_t num_computed) {
  switch (rule.policy) {
    case Policy::kFull:
      return 0;
    case Policy::kWindow:
      return std::max<int64_t>(0, num_computed - rule.window + 1) / kBlockTokens;
    case Policy::kState:
      return std::max<int64_t>(0, num_computed - 1) / kBlockTokens;
  }
  return 0;
}

void KvCache::begin(const Digest& root, int64_t num_prompt, BlockTable* table) {
  CHECK(table->num_computed == 0 && table->num_published == 0);
  table->columns.resize(columns_.size());
  if (has_state_) table->ahead.assign(columns_.size(), -1);
  table->num_prompt = num_prompt;
  table->root = root;
  refresh(table);
}

void KvCache::refresh(BlockTable* table) const {
  table->tables.resize(table->columns.size());
  for (size_t c = 0; c < table->columns.size(); ++c) {
    table->tables[c] = table->columns[c].blocks.data();
  }
}

// Adds the blocks of one more node, -1: none, to the runs of blocks without a gap. False: no longer
// prefix can be found.
bool KvCache::extend_runs(int32_t node, TierBlock block, Reach reach) const {
  for (block.column = 0; block.column < num_columns(); ++block.column) {
    const auto c = static_cast<size_t>(block.column);
    const bool has_block = reaches(node, block, reach);
    if (!has_block && columns_[c].policy == Policy::kFull) return false;
    runs_[c] = has_block ? runs_[c] + 1 : 0;
  }
  return true;
}

// Whether runs that end a prefix of so many blocks are all that its next token sees.
bool KvCache::holds(int64_t num_blocks, std::span<const int64_t> runs) const {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const int64_t first = first_needed(columns_[c], num_blocks * kBlockTokens);
    if (runs[c] < num_blocks - first) return false;
  }
  return true;
}

KvCache::Found KvCache::peek(std::span<const int32_t> tokens, const Digest& root,
                             Reach reach) const {
  Found found{0, root};
  Digest digest = root;
  std::fill(runs_.begin(), runs_.end(), 0);
  path_.clear();
  names_.clear();
  const int64_t max_blocks = (static_cast<int64_t>(tokens.size()) - 1) / kBlockTokens;
  for (int64_t n = 1; n <= max_blocks; ++n) {
    const int32_t* last = tokens.data() + (n - 1) * kBlockTokens;
    digest = index_.extend(digest, last);
    path_.push_back(index_.find(digest, last));
    names_.push_back(digest);
    if (!extend_runs(path_.back(), {digest, 0, last}, reach)) break;
    if (holds(n, runs_)) found = {n, digest};
  }
  return found;
}

int64_t KvCache::match(std::span<const int32_t> tokens, BlockTable* table) {
  CHECK(table->num_computed == 0 && table->columns.size() == columns_.size());
  const Found found = peek(tokens, table->root);
  if (found.num_blocks == 0) return 0;
  const bool is_return = is_left(found.num_blocks);
  hold_cached(found.num_blocks, table);
  if (is_return) value_found(*table);
  refresh(table);
  return table->num_computed;
}

// Whether nobody holds the end of the path that peek() found: who takes it comes back for it. What
// others hold is shared by requests of one time, which says nothing of later ones.
bool KvCache::is_left(int64_t num_blocks) const {
  const int32_t last = cached_block(path_[static_cast<size_t>(num_blocks - 1)], event_column_);
  return last >= 0 && pool_.num_holders(last) == 0;
}

void KvCache::value_found(const BlockTable& table) {
  for (const TableColumn& column : table.columns) {
    for (const int32_t block_id : column.blocks) {
      if (block_id >= 0) pool_.evictor().raise(block_id, BlockWorth::kReused);
    }
  }
}

// Of what a sequence adds: it goes on from what it found, or stands alone.
BlockWorth KvCache::worth_of_new(const BlockTable& table) const {
  if (table.retention.priority == Retention::Priority::kLow) return BlockWorth::kSpare;
  const bool goes_on = 2 * table.num_found >= blocks_for(table.num_prompt);
  return goes_on ? BlockWorth::kReused : BlockWorth::kNew;
}

// Of a block that was just published: who comes back for one that is gone would have been better
// served by keeping it. Not beyond what the block before it is worth.
void KvCache::value_written(const BlockTable& table, size_t column, const Digest& name) {
  const auto i = static_cast<size_t>(table.num_published);
  const std::vector<int32_t>& blocks = table.columns[column].blocks;
  Evictor& evictor = pool_.evictor();
  const bool follows =
      i == 0 || blocks[i - 1] < 0 || evictor.worth(blocks[i - 1]) >= BlockWorth::kReused;
  const bool is_back = follows && evicted_.contains(name);
  evictor.raise(blocks[i], is_back ? BlockWorth::kReused : worth_of_new(table));
}

// Of all that a table is about to leave, from the beginning, so that what is kept is a prefix.
void KvCache::value_left(const BlockTable& table) {
  Evictor& evictor = pool_.evictor();
  const BlockWorth least = worth_of_new(table);
  bool keeps = table.retention.priority == Retention::Priority::kHigh;
  const TimeUs until = now_ + table.retention.duration;
  for (int64_t i = 0; i <= table.num_published; ++i) {
    for (const TableColumn& column : table.columns) {
      const int32_t block_id =
          i < std::ssize(column.blocks) ? column.blocks[static_cast<size_t>(i)] : -1;
      if (block_id < 0 || !index_.contains(block_id)) continue;
      evictor.raise(block_id, least);
      keeps = keeps && evictor.keep(block_id, until, table.owner);
    }
  }
}

int64_t KvCache::fork(const BlockTable& from, int64_t num_common, BlockTable* table) {
  const auto block = static_cast<size_t>(table->num_published);
  const int64_t first = table->num_published * kBlockTokens;
  const int64_t end = std::min({num_common, from.num_computed, first + kBlockTokens});
  sources_.clear();
  for (const TableColumn& column : from.columns) {
    sources_.push_back(block < column.blocks.size() ? column.blocks[block] : -1);
  }
  if (end > first) take_copies_of(sources_, end, table);
  return table->num_computed;
}

int64_t KvCache::fork_cached(std::span<const int32_t> tokens, BlockTable* table) {
  const int64_t first = table->num_published * kBlockTokens;
  const auto next = tokens.subspan(static_cast<size_t>(first));
  const Digest& name = table->name(table->num_published);
  int32_t node = -1;
  if (next.size() >= kBlockTokens)
    node = index_.find(index_.extend(name, next.data()), next.data());
  if (node < 0) node = index_.find_end(index_.end_of(name));
  if (node < 0 || next.empty()) return table->num_computed;
  const std::span<const int32_t> cached = index_.tokens(node);
  const auto limit = static_cast<ptrdiff_t>(std::min(cached.size(), next.size() - 1));
  const auto differ = std::mismatch(cached.begin(), cached.begin() + limit, next.begin());
  const int64_t end = first + (differ.first - cached.begin());
  sources_.clear();
  for (int c = 0; c < num_columns(); ++c) sources_.push_back(index_.block(node, c));
  if (end > first) take_copies_of(sources_, end, table);
  return table->num_computed;
}

// Takes a copy of one block per column, whose positions up to `end` are computed, if it can.
void KvCache::take_copies_of(std::span<const int32_t> blocks, int64_t end, BlockTable* table) {
  const auto is_there = [](int32_t block_id) { return block_id >= 0; };
  if (has_state_ || !std::all_of(blocks.begin(), blocks.end(), is_there)) return;
  CHECK(table->num_computed == table->num_published * kBlockTokens, "{} computed, {} blocks",
        table->num_computed, table->num_published);
  for (const int32_t block_id : blocks) pool_.hold(block_id);  // not to be taken meanwhile
  if (pool_.num_available() >= num_columns()) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      const int32_t block_id = take();
      copies_.push_back({blocks[c], block_id});
      table->columns[c].blocks.push_back(block_id);
    }
    refresh(table);
    advance(end, table);
  }
  for (const int32_t block_id : blocks) drop(block_id);
}

void KvCache::keep_end(std::span<const int32_t> tokens, BlockTable* table) {
  const int64_t first = table->num_published * kBlockTokens;
  const auto block = static_cast<size_t>(table->num_published);
  const int64_t count = table->num_computed - first;
  if (has_state_ || count <= 0 || count >= kBlockTokens) return;
  const Digest name = index_.end_of(table->name(table->num_published));
  const int32_t old = index_.find_end(name);
  if (old >= 0) forget_end(old);
  const int32_t node =
      index_.add(name, tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
  for (size_t c = 0; c < columns_.size(); ++c) {
    index_.attach(node, static_cast<int>(c), table->columns[c].blocks[block]);
  }
}

// The block is no longer found.
void KvCache::unpublish(int32_t block_id) {
  const int32_t node = index_.node_of(block_id);
  const bool is_told = options_.events != nullptr && index_.column(block_id) == event_column_ &&
                       index_.tokens(node).size() == kBlockTokens;
  if (is_told) {
    options_.events->on_kv_event({KvEvent::Kind::kRemoved, index_.name(node).first, {}, {}});
  }
  index_.remove(block_id);
}

void KvCache::tell_stored(const BlockTable& table, const Digest& name, const int32_t* tokens) {
  if (options_.events == nullptr) return;
  KvEvent event{KvEvent::Kind::kStored, name.first, {}, {}};
  if (table.num_published > 0) event.parent = table.name(table.num_published).first;
  std::copy_n(tokens, kBlockTokens, event.tokens.begin());
  options_.events->on_kv_event(event);
}

void KvCache::reset() {
  for (int32_t block_id = 0; block_id < pool_.num_total(); ++block_id) {
    if (!index_.contains(block_id)) continue;
    index_.remove(block_id);
    if (pool_.is_cached(block_id)) pool_.forget(block_id);
  }
  if (options_.tier != nullptr) options_.tier->clear();
  if (options_.events != nullptr)
    options_.events->on_kv_event({KvEvent::Kind::kCleared, 0, {}, {}});
}

// Nobody holds the blocks of an end.
void KvCache::forget_end(int32_t node) {
  for (int c = 0; c < num_columns(); ++c) {
    const int32_t block_id = index_.block(node, c);
    if (block_id < 0) continue;
    unpublish(block_id);
    pool_.forget(block_id);
  }
}

int64_t KvCache::needed_size(const CacheRule& rule, int64_t num_tokens,
                             int64_t num_computed) const {
  if (rule.policy == Policy::kFull) return blocks_for(num_tokens);
  return blocks_for(std::min(num_tokens, num_computed + options_.max_chunk));
}

// Whether guesses need one more block of a state column: the spare one goes to the tokens before
// them.
bool KvCache::needs_ahead(const BlockTable& table, size_t column, int64_t num_tokens,
                          int64_t num_guesses) {
  if (num_guesses == 0 || table.ahead[column] >= 0) return false;
  const std::vector<int32_t>& blocks = table.columns[column].blocks;
  const auto last = static_cast<size_t>((num_tokens - num_guesses - 1) / kBlockTokens);
  return last >= blocks.size() || blocks[last] < 0;
}

int64_t KvCache::missing(int64_t num_tokens, const BlockTable& table, int64_t num_guesses) const {
  int64_t missing = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const TableColumn& column = table.columns[c];
    if (columns_[c].policy == Policy::kState) {
      missing += num_tokens > table.num_computed && column.spare < 0 ? 1 : 0;
      missing += needs_ahead(table, c, num_tokens, num_guesses) ? 1 : 0;
    } else {
      const int64_t size = needed_size(columns_[c], num_tokens, table.num_computed);
      missing += std::max<int64_t>(0, size - std::ssize(column.blocks));
    }
  }
  return missing;
}

bool KvCache::reserve(int64_t num_tokens, BlockTable* table, int64_t num_guesses) {
  const int64_t num_missing = missing(num_tokens, *table, num_guesses);
  if (num_missing == 0) return true;
  if (num_missing > pool_.num_available()) return false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    TableColumn& column = table->columns[c];
    if (columns_[c].policy == Policy::kState) {
      if (column.spare < 0) column.spare = take();
      if (needs_ahead(*table, c, num_tokens, num_guesses)) table->ahead[c] = take();
      continue;
    }
    const int64_t size = needed_size(columns_[c], num_tokens, table->num_computed);
    while (std::ssize(column.blocks) < size) column.blocks.push_back(take());
  }
  refresh(table);
  return true;
}

// Blocks of windows and states that others hold too count as not held: the table gives them back
// while they stay used.
int64_t KvCache::promised(int64_t num_tokens, const BlockTable& table) const {
  int64_t num_held = 0;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const TableColumn& column = table.columns[c];
    const bool is_full = columns_[c].policy == Policy::kFull;
    num_held += column.spare >= 0 ? 1 : 0;
    num_held += table.ahead_of(c) >= 0 ? 1 : 0;
    for (auto i = static_cast<size_t>(column.first); i < column.blocks.size(); ++i) {
      const int32_t block_id = column.blocks[i];
      num_held += block_id >= 0 && (is_full || pool_.num_holders(block_id) == 1) ? 1 : 0;
    }
  }
  return std::max<int64_t>(0,
                           most_blocks(options_.rules, num_tokens, options_.max_chunk) - num_held);
}

// Whether state groups keep what they have after so many tokens.
bool KvCache::keeps_state(int64_t num_tokens, const BlockTable& table) const {
  if (num_tokens % kBlockTokens != 0) return false;
  if (num_tokens == (table.num_prompt - 1) / kBlockTokens * kBlockTokens) return true;
  return std::any_of(columns_.begin(), columns_.end(), [num_tokens](const CacheRule& rule) {
    return rule.policy == Policy::kState && num_tokens / kBlockTokens % rule.snapshot_blocks == 0;
  });
}

int64_t KvCache::limit_chunk(int64_t count, const BlockTable& table) const {
  if (!has_state_) return count;
  const int64_t end = table.num_computed + count;
  int64_t boundary = (table.num_computed / kBlockTokens + 1) * kBlockTokens;
  while (boundary < end && !keeps_state(boundary, table)) boundary += kBlockTokens;
  return std::min(end, boundary) - table.num_computed;
}

void KvCache::prepare(int64_t count, BlockTable* table, int64_t num_guesses) {
  if (!has_state_) return;
  const auto last = static_cast<size_t>((table->num_computed + count - 1) / kBlockTokens);
  for (size_t c = 0; c < columns_.size(); ++c) {
    TableColumn& column = table->columns[c];
    if (columns_[c].policy != Policy::kState) continue;
    if (column.blocks.size() <= last) column.blocks.resize(last + 1, -1);
    // Else it stays where it is: nobody else has that.
    if (column.blocks[last] < 0) column.blocks[last] = std::exchange(column.spare, -1);
    if (num_guesses > 0 && table->ahead[c] < 0) table->ahead[c] = std::exchange(column.spare, -1);
    CHECK(column.blocks[last] >= 0 && (num_guesses == 0 || table->ahead[c] >= 0),
          "no block for the state after position {}", table->num_computed);
  }
  refresh(table);
}

int64_t KvCache::verify(int64_t end, int64_t num_guesses, int64_t num_right, BlockTable* table) {
  if (!has_state_ || num_guesses == 0) return end - num_guesses + num_right;
  const bool all_right = num_right == num_guesses;
  const auto last = static_cast<size_t>((end - 1) / kBlockTokens);
  for (size_t c = 0; c < columns_.size(); ++c) {
    TableColumn& column = table->columns[c];
    if (columns_[c].policy != Policy::kState) continue;
    if (column.blocks.size() <= last && all_right) column.blocks.resize(last + 1, -1);
    if (all_right) std::swap(column.blocks[last], table->ahead[c]);
    if (column.spare < 0) std::swap(column.spare, table->ahead[c]);
  }
  drop_ahead(table);
  refresh(table);
  table->num_reached = end - num_guesses + num_right;
  return all_right ? end : end - num_guesses;
}

void KvCache::drop_ahead(BlockTable* table) {
  for (int32_t& block_id : table->ahead) {
    if (block_id >= 0) drop(std::exchange(block_id, -1));
  }
}

void KvCache::commit(std::span<const int32_t> tokens, int64_t num_computed, BlockTable* table) {
  CHECK(num_computed <= static_cast<int64_t>(tokens.size()), "{} computed, {} tokens", num_computed,
        tokens.size());
  while ((table->num_published + 1) * kBlockTokens <= num_computed) {
    publish_block(tokens.data() + table->num_published * kBlockTokens, num_computed, table);
  }
  advance(num_computed, table);
}

// The first block of the table that is not published yet.
void KvCache::publish_block(const int32_t* tokens, int64_t num_computed, BlockTable* table) {
  const int64_t end = (table->num_published + 1) * kBlockTokens;
  const Digest digest = index_.extend(table->name(table->num_published), tokens);
  int32_t node = index_.find(digest, tokens);
  bool wrote = false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    std::vector<int32_t>& blocks = table->columns[c].blocks;
    const auto i = static_cast<size_t>(table->num_published);
    if (i >= blocks.size() || blocks[i] < 0) continue;
    if (columns_[c].policy == Policy::kState &&
        (num_computed != end || !keeps_state(end, *table))) {
      continue;
    }
    const int column = static_cast<int>(c);
    const int32_t same = node < 0 ? -1 : index_.block(node, column);
    if (same >= 0) {  // another sequence computed the same at the same time: one copy is enough
      pool_.hold(same);
      drop(blocks[i]);
      blocks[i] = same;
      continue;
    }
    CHECK(pool_.num_holders(blocks[i]) == 1, "block {} has {} holders", blocks[i],
          pool_.num_holders(blocks[i]));
    if (node < 0) node = index_.add(digest, {tokens, kBlockTokens});
    index_.attach(node, column, blocks[i]);
    value_written(*table, c, digest);
    if (column == event_column_) tell_stored(*table, digest, tokens);
    offer(blocks[i], KeepReason::kPublished);
    wrote = true;
  }
  table->wrote.push_back(wrote);
  table->names.push_back(digest);
  ++table->num_published;
}

void KvCache::advance(int64_t num_computed, BlockTable* table) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    TableColumn& column = table->columns[c];
    const int64_t first =
        std::min(first_needed(columns_[c], num_computed), std::ssize(column.blocks));
    // The lowest first: what is left of a window ends where the sequence is.
    for (; column.first < first; ++column.first) {
      int32_t& block_id = column.blocks[static_cast<size_t>(column.first)];
      if (block_id >= 0) drop(std::exchange(block_id, -1));
    }
  }
  table->num_computed = num_computed;
}

void KvCache::rollback(int64_t num_tokens, BlockTable* table) {
  const int64_t keep = blocks_for(num_tokens);
  CHECK(keep >= table->num_published, "rollback to {} blocks, {} are published", keep,
        table->num_published);
  CHECK(!has_state_ || num_tokens >= table->num_computed, "state cannot go back to {} from {}",
        num_tokens, table->num_computed);
  for (TableColumn& column : table->columns) {
    for (; std::ssize(column.blocks) > keep; column.blocks.pop_back()) {
      if (column.blocks.back() >= 0) drop(column.blocks.back());
    }
  }
  table->num_computed = std::min(table->num_computed, num_tokens);
}

void KvCache::release(BlockTable* table) {
  value_left(*table);
  drop_ahead(table);
  int64_t last = 0;
  for (size_t c = 0; c < table->columns.size(); ++c) {
    TableColumn& column = table->columns[c];
    last = std::max(last, std::ssize(column.blocks) - 1);
    if (column.spare >= 0) drop(std::exchange(column.spare, -1));
    if (columns_[c].policy == Policy::kFull) continue;
    for (const int32_t block_id : column.blocks) {
      if (block_id >= 0) drop(block_id);
    }
    column.blocks.clear();
  }
  // Last block first: when space is needed, the end of a prefix goes before its beginning.
  for (int64_t i = last; i >= 0; --i) {
    for (TableColumn& column : table->columns) {
      if (i < std::ssize(column.blocks)) drop(column.blocks[static_cast<size_t>(i)]);
    }
  }
  *table = {};
}

void KvCache::discard(BlockTable* table) {
  for (TableColumn& column : table->columns) {
    for (size_t i = 0; i < column.blocks.size(); ++i) {
      const int32_t block_id = column.blocks[i];
      if (block_id < 0) continue;
      const bool is_published = index_.contains(block_id);
      if (is_published && i < table->wrote.size() && !table->wrote[i]) continue;
      if (is_published) {
        if (options_.tier != nullptr) {
          options_.tier->forget(index_.name(index_.node_of(block_id)), index_.column(block_id));
        }
        unpublish(block_id);
      }
      pool_.taint(block_id);
    }
    if (column.spare >= 0) pool_.taint(column.spare);  // guesses may have written it
  }
  for (const int32_t ahead : table->ahead) {
    if (ahead >= 0) pool_.taint(ahead);
  }
  release(table);
}

int32_t KvCache::take() {
  if (pool_.num_free() == 0) {
    const int32_t block_id = pool_.next_evicted();
    CHECK(block_id >= 0, "no block is available");
    offer(block_id, KeepReason::kEvicted);
    if (index_.column(block_id) == event_column_)
      evicted_.add(index_.name(index_.node_of(block_id)));
    unpublish(block_id);
    pool_.forget(block_id);
  }
  return pool_.take_free();
}

Status KvCache::check(std::span<const BlockTable* const> holders) const {
  std::vector<int32_t> held(static_cast<size_t>(pool_.num_total()), 0);
  for (const BlockTable* table : holders) {
    for (const int32_t block_id : table->ahead) {
      if (block_id >= 0) ++held[static_cast<size_t>(block_id)];
    }
    for (const TableColumn& column : table->columns) {
      if (column.spare >= 0) ++held[static_cast<size_t>(column.spare)];
      for (const int32_t block_id : column.blocks) {
        if (block_id >= 0) ++held[static_cast<size_t>(block_id)];
      }
    }
    TRY(check_table(*table));
  }
  TRY(pool_.check(held));
  for (int32_t i = 0; i < static_cast<int32_t>(held.size()); ++i) {
    const bool findable = index_.contains(i);
    if (pool_.num_holders(i) == 0 && findable != pool_.is_cached(i)) {
      return make_error(ErrorCode::kInternal, "block {} is {}findable, but {}cached", i,
                        findable ? "" : "not ", pool_.is_cached(i) ? "" : "not ");
    }
  }
  return index_.check();
}

// Every position that the next token sees has its block; what it does not see is given back.
Status KvCache::check_table(const BlockTable& table) const {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const std::vector<int32_t>& blocks = table.columns[c].blocks;
    const int64_t first = first_needed(columns_[c], table.num_computed);
    const int64_t end = blocks_for(table.num_computed);
    for (int64_t i = 0; i < std::max(end, std::ssize(blocks)); ++i) {
      const bool has = i < std::ssize(blocks) && blocks[static_cast<size_t>(i)] >= 0;
      if (i < first ? has : (i < end && !has)) {
        return make_error(ErrorCode::kInternal,
                          "column {} with {} positions computed {} block {}, it sees those from {}",
                          c, table.num_computed, has ? "still has" : "lacks", i, first);
      }
    }
  }
  return {};
}

}  // namespace headrace
