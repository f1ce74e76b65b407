// Span: consecutive tokens of one sequence in a step. One type from the plan to the backend.
//
// The scheduler fills it, the step runner reads what is wanted of its rows, the model its tokens'
// places, a backend the geometry alone (rows, positions, tables). A plain value; what it points to
// outlives the step.
#pragma once

#include <cstdint>

namespace headrace {

class PackedAdapter;  // packed_weight.h

struct Span {
  // Geometry: rows [first_row, first_row + num_rows) of the batch hold the tokens at absolute
  // positions first_position... Earlier positions of the sequence are in the KV store already.
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int64_t first_position = 0;
  // One table of blocks per column of layers: tables[t][p / kBlockTokens] is the block that holds
  // position p, or -1 where no row of the span sees it. A layer names its table (KvLayer::table).
  const int32_t* const* tables = nullptr;

  int64_t rope_epoch = 0;  // Model::rope_epoch(tokens known of this sequence)
  // [num_rows] where each row stands for rope, which need not be where its keys lie (parts of an
  // image share places); null: first_position + i.
  const int64_t* rope_positions = nullptr;
  // [num_rows, hidden_size] host values that stand for the embedded tokens (of an image, say), as
  // the first layer reads them; null: the tokens are embedded. Ids are then any of the vocabulary.
  const float* embeddings = nullptr;
  // Of a head for further tokens: [num_rows, hidden_size] host values, the state after the final
  // norm that each row's token is joined with; else null.
  const float* states = nullptr;
  // [num_rows] the tokens of these rows, where they are not those of the sequence at these
  // positions; null: they are.
  const int32_t* token_ids = nullptr;
  // The additional weights that these rows take, made for the weights of this model; null: none.
  const PackedAdapter* adapter = nullptr;

  // The last num_draft rows hold guesses: tokens that count if the rows before sample them.
  int32_t num_draft = 0;
  // [number of tables] of layers with state: the block for the state after the guesses, beside that
  // after the tokens before them, which tables name; null: there are no guesses to be taken back.
  const int32_t* states_ahead = nullptr;

  // Whose logits are wanted, in this order: rows of positions [first_scored, first_scored +
  // num_scored), which score the prompt token that follows each; the last num_sampled rows, which
  // give tokens: none, or those of the last known token and of every guess.
  int64_t first_scored = 0;
  int32_t num_scored = 0;
  int32_t num_sampled = 0;
  // [num_sampled][words of the vocabulary] bits of the tokens that may be sampled; null: all may.
  // Written until the step's logits are there.
  uint64_t* masks = nullptr;

  // Whose state after the final norm is wanted: rows of positions [first_pooled, first_pooled +
  // num_pooled).
  int64_t first_pooled = 0;
  int32_t num_pooled = 0;

  int64_t end_position() const { return first_position + num_rows; }
  int32_t num_logit_rows() const { return num_scored + num_sampled; }
  // The last rows, whose state has a place of its own.
  int32_t num_ahead() const { return states_ahead == nullptr ? 0 : num_draft; }
};

}  // namespace headrace
