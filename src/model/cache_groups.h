// Cache groups: what each layer keeps of a sequence, and how it lies in blocks of one size.
//
// A model states its groups: layers with the same policy and what they keep. Every block of every
// group has the same size, so one pool serves all and nothing fragments. A group is cut into
// columns: the layers of one column share the blocks of one table, entry i of which is the block of
// positions [16 i, 16 i + 16). A model of one group has one column with all its layers. The cut
// makes the columns of all groups (nearly) equal, so that blocks are (nearly) full: plan_cache().
//
// Policies, and what a table holds while the tokens before position p are computed:
//   full    the blocks of all positions
//   window  those that the token at p still sees: positions > p - window
//   state   not positions but the state after them, in the block of position p - 1. A step reads
//           the state where it was and writes it in the block of the step's last position, so a
//           snapshot is a block that is kept: at every snapshot_blocks blocks and at the last block
//           boundary inside the prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace headrace {

enum class CachePolicy : uint8_t { kFull, kWindow, kState };

// One layer of the model, and what it keeps. State may come in several pieces (of a head each,
// say): entries with the same layer, one after the other. Pieces may lie in different columns, so
// that a large state does not make every block as large.
struct CacheLayer {
  int layer_idx = 0;
  std::vector<KvPlane> planes;
};

struct CacheGroup {
  std::vector<CacheLayer> layers;  // each layer of the model in one group at most
  CachePolicy policy = CachePolicy::kFull;
  int64_t window = 0;           // kWindow: positions a token sees, itself included
  int64_t snapshot_blocks = 0;  // kState
};

// A group as the engine's KvCache sees it.
struct CacheRule {
  CachePolicy policy = CachePolicy::kFull;
  int64_t window = 0;
  int64_t snapshot_blocks = 0;
  int num_columns = 1;
};

// The most blocks that a sequence of num_tokens, computed at most max_chunk at once, ever holds.
int64_t most_blocks(const std::vector<CacheRule>& rules, int64_t num_tokens, int64_t max_chunk);

// Where planes lie in each block of a column, one behind the other.
struct CachePiece {
  int column = 0;
  size_t offset = 0;
  std::vector<KvPlane> planes;
};

// What a layer keeps: one piece, or several of state.
struct CachePlace {
  CachePolicy policy = CachePolicy::kFull;
  std::vector<CachePiece> pieces;  // none: the layer keeps nothing
};

struct CacheLayout {
  std::vector<CacheRule> rules;    // of the groups; their columns are numbered in this order
  std::vector<CachePlace> places;  // by layer of the model
  int num_columns = 0;
  size_t block_bytes = 0;  // of each block: the largest column

  // The most that a sequence of num_tokens, computed at most max_chunk at once, ever holds.
  size_t bytes_for(int64_t num_tokens, int64_t max_chunk) const;
};

// Cuts groups into columns so that a context of some thousand tokens takes the fewest bytes; of
// cuts that are nearly as good, the one with the fewest columns. A function of the groups alone.
CacheLayout plan_cache(const std::vector<CacheGroup>& groups, const Backend& backend);

// Bytes of a plane in a block.
size_t cache_plane_bytes(const KvPlane& plane, CachePolicy policy, const Backend& backend);

}  // namespace headrace
