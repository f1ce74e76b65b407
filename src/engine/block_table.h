// BlockTable: the KV blocks of one sequence, of every column of every cache group.
//
// Changed by KvCache only. Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "engine/keyed_digest.h"
#include "engine/request.h"

namespace headrace {

inline int64_t blocks_for(int64_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

// blocks[i] holds positions [16 i, 16 i + 16); -1 where nothing is held (any more).
struct TableColumn {
  std::vector<int32_t> blocks;
  int64_t first = 0;   // no block before this one is held
  int32_t spare = -1;  // of a state group: the block that the next step writes to
};

struct BlockTable {
  std::vector<TableColumn> columns;
  std::vector<const int32_t*> tables;  // by column: its blocks, for Span
  std::vector<int32_t> ahead;          // by column, while guesses are verified: Span::states_ahead
  std::vector<bool> wrote;             // published blocks that this sequence wrote itself
  int64_t num_computed = 0;            // positions whose bytes are there
  int64_t num_reached = 0;             // that were, before state went with wrong guesses
  int64_t num_published = 0;           // leading blocks that are full and known to the index
  int64_t num_prompt = 0;              // tokens; where snapshots of state are worth most
  int64_t num_found = 0;               // blocks that match() found
  Retention retention;                 // how long its request wants its blocks kept
  uint64_t owner = 0;                  // who answers for that
  Digest root;                         // name of the empty prefix
  std::vector<Digest> names;           // [num_published]: of the prefix that ends with each block

  // The block for the state of a column after guesses; -1: there are none.
  int32_t ahead_of(size_t column) const { return ahead.empty() ? -1 : ahead[column]; }
  int64_t num_taken_back() const { return std::max<int64_t>(0, num_reached - num_computed); }
  const Digest& name(int64_t num_blocks) const {
    return num_blocks == 0 ? root : names[static_cast<size_t>(num_blocks - 1)];
  }
};

}  // namespace headrace
