// Span: consecutive tokens of one sequence in a step. One type from the plan to the backend.
//
// The scheduler fills it, the step runner reads what is wanted of its rows, the model its tokens'
// places, a backend the geometry alone (rows, positions, tables). A plain value; what it points to
// outlives the step.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

inline constexpr int kMaxCacheGroups = 4;

// One table of blocks per cache group: tables[g][p / kBlockTokens] is the block of group g that
// holds position p. A layer names its group (KvLayer::group).
using BlockTables = std::array<const int32_t*, kMaxCacheGroups>;

struct Span {
  // Geometry: rows [first_row, first_row + num_rows) of the batch hold the tokens at absolute
  // positions first_position... Earlier positions of the sequence are in the KV store already.
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int64_t first_position = 0;
  BlockTables tables{};  // cover position first_position + num_rows - 1

  int64_t rope_epoch = 0;  // Model::rope_epoch(tokens known of this sequence)

  // Whose logits are wanted, in this order: rows of positions [first_scored, first_scored +
  // num_scored), which score the prompt token that follows each; the last num_sampled rows, which
  // give tokens.
  int64_t first_scored = 0;
  int32_t num_scored = 0;
  int32_t num_sampled = 0;

  int64_t end_position() const { return first_position + num_rows; }
  int32_t num_logit_rows() const { return num_scored + num_sampled; }
};

}  // namespace headrace
