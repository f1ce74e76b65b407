// StoredBlock: which block some bytes are, kept with them. BlockKey: its name in tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "engine/kv_tier.h"

namespace headrace {

struct BlockKey {
  Digest name;
  int32_t column = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

// Names are keyed digests: nobody can choose where they fall.
struct BlockKeyHash {
  size_t operator()(const BlockKey& key) const {
    return static_cast<size_t>(key.name.first) + static_cast<size_t>(key.column);
  }
};

struct StoredBlock {
  BlockKey key;
  std::array<int32_t, kBlockTokens> tokens{};

  StoredBlock() = default;
  explicit StoredBlock(const TierBlock& block) : key{block.name, block.column} {
    std::copy_n(block.tokens, kBlockTokens, tokens.begin());
  }
  bool is(const TierBlock& block) const {
    return key == BlockKey{block.name, block.column} &&
           std::equal(tokens.begin(), tokens.end(), block.tokens);
  }
  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

}  // namespace headrace
