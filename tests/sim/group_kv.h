// The blocks of a toy model with cache groups: what it wrote where, checked against what it reads.
//
// A slot of a full or window column holds the hash of all tokens up to its position, a block of a
// state column the hash after the tokens computed so far, guesses apart. Before each span all that
// its first token sees is compared with what the sequence's tokens say, so a wrong, stale, shared,
// early or missing block is counted.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "engine/scheduler.h"
#include "sim/fake_model.h"

namespace headrace {

class GroupKv {
 public:
  GroupKv(int64_t num_blocks, const std::vector<CacheRule>& rules)
      : blocks_(static_cast<size_t>(num_blocks)) {
    for (const CacheRule& rule : rules) {
      columns_.insert(columns_.end(), static_cast<size_t>(rule.num_columns), rule);
    }
  }

  // Computes the span's positions of tokens; returns the hash after each.
  std::vector<uint64_t> run(const Span& span, std::span<const int32_t> tokens, int64_t epoch) {
    const int64_t first = span.first_position, end = span.end_position();
    const int32_t* const* tables = span.tables;
    std::vector<uint64_t> hashes = {0};  // [i]: after i tokens
    for (int64_t p = 0; p < end; ++p) {
      hashes.push_back(extend_hash(hashes.back(), tokens[static_cast<size_t>(p)], p, epoch));
    }
    for (size_t c = 0; c < columns_.size(); ++c) read(columns_[c], tables[c], hashes, first);
    for (size_t c = 0; c < columns_.size(); ++c) write(c, span, hashes);
    return {hashes.begin() + first + 1, hashes.end()};
  }
  // tier: where copies without one of their blocks go or come from.
  void copy(std::span<const BlockCopy> copies, KvTier* tier = nullptr) {
    for (const BlockCopy& copy : copies) {
      if (copy.to < 0 || copy.from < 0) CHECK(tier != nullptr);
      if (copy.to < 0) {
        std::memcpy(tier->bytes(copy.slot).data(), &block(copy.from), sizeof(Block));
      } else if (copy.from < 0) {
        std::memcpy(&block(copy.to), tier->bytes(copy.slot).data(), sizeof(Block));
      } else {
        block(copy.to) = block(copy.from);
      }
    }
    num_copied_ += std::ssize(copies);
    if (tier != nullptr) tier->copies_done();
  }
  int64_t num_errors() const { return num_errors_; }
  int64_t num_copied() const { return num_copied_; }

 private:
  using Block = std::array<uint64_t, kBlockTokens>;

  Block& block(int32_t block_id) { return blocks_.at(static_cast<size_t>(block_id)); }
  uint64_t* at(const int32_t* table, int64_t position) {
    const int32_t block_id = table[position / kBlockTokens];
    if (block_id >= 0) return &block(block_id)[static_cast<size_t>(position % kBlockTokens)];
    ++num_errors_;  // it was given back
    return &nowhere_;
  }
  void read(const CacheRule& rule, const int32_t* table, const std::vector<uint64_t>& hashes,
            int64_t first) {
    if (first == 0) return;
    int64_t p = 0;
    if (rule.policy == CachePolicy::kWindow) p = std::max<int64_t>(0, first - rule.window + 1);
    if (rule.policy == CachePolicy::kState) {
      const int64_t last = (first - 1) / kBlockTokens * kBlockTokens;
      num_errors_ += *at(table, last) != hashes[static_cast<size_t>(first)] ? 1 : 0;
      return;
    }
    for (; p < first; ++p) {
      num_errors_ += *at(table, p) != hashes[static_cast<size_t>(p) + 1] ? 1 : 0;
    }
  }
  void write(size_t column, const Span& span, const std::vector<uint64_t>& hashes) {
    const int32_t* table = span.tables[column];
    const int64_t end = span.end_position();
    if (columns_[column].policy == CachePolicy::kState) {
      const int64_t num_known = end - span.num_ahead();
      num_errors_ += span.num_draft != span.num_ahead() ? 1 : 0;  // could not be taken back
      *at(table, (num_known - 1) / kBlockTokens * kBlockTokens) =
          hashes[static_cast<size_t>(num_known)];
      if (num_known < end) {
        block(span.states_ahead[column])[0] = hashes[static_cast<size_t>(end)];
      }
      return;
    }
    for (int64_t p = span.first_position; p < end; ++p) {
      *at(table, p) = hashes[static_cast<size_t>(p) + 1];
    }
  }

  std::vector<Block> blocks_;
  std::vector<CacheRule> columns_;
  uint64_t nowhere_ = 0;
  int64_t num_errors_ = 0;
  int64_t num_copied_ = 0;
};

}  // namespace headrace
