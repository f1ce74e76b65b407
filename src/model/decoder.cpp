#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "backend/op_record.h"
#include "model/layer_inputs.h"
#include "model/mixers.h"
#include "model/mlp.h"
#include "model/streams.h"

namespace headrace {

Decoder::Decoder(const ModelConfig& config, const Weights& weights, Backend& backend,
                 Workspace& workspace)
    : config_(config), weights_(weights), backend_(backend), workspace_(workspace) {
  for (const RopeConfig& rope : config.ropes) ropes_.emplace_back(rope);
}

int64_t Decoder::rope_epoch(int64_t num_tokens) const {
  int64_t epoch = 0;
  for (const RopeTable& rope : ropes_) epoch = std::max(epoch, rope.epoch(num_tokens));
  return epoch;
}

void Decoder::forward(const Batch& batch, KvStore& kv, const StepOutput& output,
                      const HiddenTap& tap) {
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  prepare(batch);
  const StepContext step{config_, backend_, workspace_, kv, backend_.begin_step(batch.spans),
                         num_rows};
  config_.joins_states ? join_states(batch) : embed(batch);
  if (config_.hidden_size_per_layer_input > 0) {
    make_layer_inputs(step, weights_.network, batch.token_ids);
  }
  if (config_.num_streams > 1) open_streams(step, weights_.network);
  show(tap, -1, workspace_.hidden, num_rows);
  for (int i = 0; i < config_.num_layers(); ++i) {
    backend_.enter_layer(i);
    config_.num_streams > 1 ? run_stream_layer(step, i) : run_layer(step, i);
    show(tap, i, workspace_.hidden, num_rows);
  }
  backend_.enter_layer(kNoOpLayer);
  if (config_.num_streams > 1) close_streams(step, weights_.network);
  if (tap) show_final_norm(step, tap);
  if (output.finite != nullptr) {
    backend_.find_finite_rows(workspace_.hidden, num_rows, config_.hidden_size, output.finite);
  }
  if (!batch.hidden_rows.empty()) compute_hidden(step, batch, output);
  compute_logits(step, batch, output);
}

void Decoder::embed(const Batch& batch) {
  backend_.embed(weights_.embedding(), batch.token_ids, config_.embedding_scale, nullptr,
                 workspace_.hidden);
  for (const Span& span : batch.spans) {
    if (span.embeddings == nullptr) continue;
    const auto num_values = static_cast<size_t>(span.num_rows * config_.hidden_size);
    backend_.upload(std::span(span.embeddings, num_values),
                    workspace_.hidden + span.first_row * config_.hidden_size);
  }
  const size_t num_rows = batch.token_ids.size();
  if (config_.learned_positions) add_positions(num_rows);
  if (config_.embedding_norm) {
    norm_rows(norm_of(weights_.network, Role::kEmbeddingNorm), workspace_.hidden,
              {workspace_.hidden, static_cast<int64_t>(num_rows)});
  }
}

// x = W [N1 e, N2 h]: the embedded token, and the state of the position before it.
void Decoder::join_states(const Batch& batch) {
  const RoleWeights& layer = weights_.layers.front();
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  const DevicePtr<float> tokens = workspace_.to_join;
  const DevicePtr<float> states = tokens + num_rows * config_.hidden_size;
  backend_.embed(weights_.embedding(), batch.token_ids, config_.embedding_scale, nullptr, tokens);
  for (const Span& span : batch.spans) {
    CHECK(span.states != nullptr, "a head for further tokens has no states of {} rows",
          span.num_rows);
    const auto num_values = static_cast<size_t>(span.num_rows * config_.hidden_size);
    backend_.upload(std::span(span.states, num_values),
                    states + span.first_row * config_.hidden_size);
  }
  norm_rows(norm_of(layer, Role::kPredictionTokenNorm), tokens, {tokens, num_rows});
  norm_rows(norm_of(layer, Role::kPredictionStateNorm), states, {states, num_rows});
  const std::span<int32_t> order =
      std::span(workspace_.join_order).first(2 * batch.token_ids.size());
  for (size_t row = 0; row < batch.token_ids.size(); ++row) {
    order[2 * row] = static_cast<int32_t>(row);
    order[2 * row + 1] = static_cast<int32_t>(batch.token_ids.size() + row);
  }
  backend_.gather_rows({.x = tokens,
                        .num_rows = 2 * num_rows,
                        .width = config_.hidden_size,
                        .rows = order,
                        .out = workspace_.joined});
  backend_.linear(layer.weight(Role::kPredictionJoin), workspace_.joined, num_rows, Epilogue{},
                  workspace_.hidden);
}

// A place beyond the table is its last: no context is longer, but places for rope may be.
void Decoder::add_positions(size_t num_rows) {
  const PackedWeight& table = weights_.network.weight(Role::kPositions);
  const std::span<int32_t> rows = std::span(workspace_.position_rows).first(num_rows);
  for (size_t i = 0; i < num_rows; ++i) {
    const int64_t row = workspace_.positions[i] + config_.position_offset;
    rows[i] = static_cast<int32_t>(std::min(row, table.num_outputs() - 1));
  }
  backend_.embed(table, rows, 1.0f, workspace_.hidden, workspace_.hidden);
}

void Decoder::run_layer(const StepContext& step, int layer_idx) {
  const RoleWeights& layer = weights_.layers[static_cast<size_t>(layer_idx)];

  Branch mixer = branch_of(layer, Role::kAttentionNorm, Role::kPostAttentionNorm);
  if (config_.parallel_block) mixer.out = workspace_.branch;  // the MLP reads x as well
  run_mixer(step, layer_idx, layer, mixer);

  const bool shares_norm = config_.parallel_block && !layer.vector(Role::kMlpNorm);
  const Role before_mlp = shares_norm ? Role::kAttentionNorm : Role::kMlpNorm;
  Branch mlp = branch_of(layer, before_mlp, Role::kPostMlpNorm);
  if (config_.parallel_block) mlp.epilogue.residual = workspace_.branch;
  Branch input = bare_branch(layer, Role::kPostPerLayerNorm);
  const bool has_input = config_.hidden_size_per_layer_input > 0;
  (has_input ? input : mlp).epilogue.gain = layer.vector(Role::kLayerScalar);
  run_mlp(step, layer_idx, layer, mlp);
  if (has_input) add_layer_input(step, layer_idx, layer, input);
}

// What the layer makes of the residual stream lies apart from it, until all streams are corrected.
void Decoder::run_stream_layer(const StepContext& step, int layer_idx) {
  const RoleWeights& layer = weights_.layers[static_cast<size_t>(layer_idx)];
  predict_streams(step, layer);
  const Norm before = norm_of(layer, Role::kAttentionNorm);
  run_low_rank(step, layer, before);

  Branch mixer = branch_of(layer, Role::kAttentionNorm, Role::kPostAttentionNorm);
  mixer.epilogue.residual = mixer.out = active_stream(step);
  mixer.epilogue.gain = workspace_.half_root;
  run_mixer(step, layer_idx, layer, mixer);

  Branch mlp = branch_of(layer, Role::kMlpNorm, Role::kPostMlpNorm);
  mlp.input.x = mlp.epilogue.residual = mlp.out = active_stream(step);
  run_mlp(step, layer_idx, layer, mlp);

  correct_streams(step, layer);
  if (config_.hidden_size_per_layer_input == 0) return;
  Branch input = bare_branch(layer, Role::kPostPerLayerNorm);
  input.input = workspace_.normed;
  input.epilogue.residual = {};
  input.out = active_stream(step);
  add_layer_input(step, layer_idx, layer, input);
  spread_active(step);
}

Norm Decoder::norm_of(const RoleWeights& weights, Role role) const {
  const DevicePtr<const float> weight = weights.vector(role);
  Norm norm{config_.norm, weight, config_.norm_eps};
  if (weight && config_.norm_bias) norm.bias = weight + config_.hidden_size;
  return norm;
}

void Decoder::norm_rows(const Norm& norm, DevicePtr<const float> x, const Rows& out) {
  backend_.norm(NormArgs{.kind = norm.kind,
                         .x = x,
                         .weight = norm.weight,
                         .out = out.values,
                         .num_rows = out.count,
                         .width = config_.hidden_size,
                         .eps = norm.eps,
                         .bias = norm.bias});
}

// x += post_norm(branch(norm(x))) on the residual stream x; a norm without weight is the identity.
Branch Decoder::branch_of(const RoleWeights& weights, Role norm, Role post_norm) const {
  Branch branch = bare_branch(weights, post_norm);
  branch.input = {workspace_.hidden, norm_of(weights, norm), workspace_.normed};
  return branch;
}

// x += post_norm(branch(x))
Branch Decoder::bare_branch(const RoleWeights& weights, Role post_norm) const {
  return {.input = workspace_.hidden,
          .epilogue = {.residual = workspace_.hidden,
                       .scale = config_.residual_scale,
                       .post_norm = norm_of(weights, post_norm),
                       .branch = workspace_.branch},
          .out = workspace_.hidden};
}

void Decoder::show(const HiddenTap& tap, int layer, DevicePtr<const float> rows, int64_t num_rows) {
  if (!tap) return;
  shown_.resize(static_cast<size_t>(num_rows * config_.hidden_size));
  backend_.download(rows, std::span(shown_));
  tap(layer, shown_.data(), num_rows, config_.hidden_size);
}

void Decoder::show_final_norm(const StepContext& step, const HiddenTap& tap) {
  norm_rows(norm_of(weights_.network, Role::kFinalNorm), workspace_.hidden,
            {workspace_.normed, step.num_rows});
  show(tap, config_.num_layers(), workspace_.normed, step.num_rows);
}

void Decoder::compute_hidden(const StepContext& step, const Batch& batch,
                             const StepOutput& output) {
  CHECK(output.hidden, "{} hidden rows are wanted nowhere", batch.hidden_rows.size());
  backend_.gather_rows({.x = workspace_.hidden,
                        .num_rows = step.num_rows,
                        .width = config_.hidden_size,
                        .rows = batch.hidden_rows,
                        .out = output.hidden});
  norm_rows(norm_of(weights_.network, Role::kFinalNorm), output.hidden,
            {output.hidden, std::ssize(batch.hidden_rows)});
}

void Decoder::compute_logits(const StepContext& step, const Batch& batch,
                             const StepOutput& output) {
  const DevicePtr<float> rows = workspace_.logit_rows;
  DevicePtr<float> next = rows;
  for (const auto wanted : {batch.logit_rows, batch.best_rows}) {
    backend_.gather_rows({.x = workspace_.hidden,
                          .num_rows = step.num_rows,
                          .width = config_.hidden_size,
                          .rows = wanted,
                          .out = next});
    next += std::ssize(wanted) * config_.hidden_size;
  }
  HeadArgs head;
  head.num_written = static_cast<int64_t>(batch.logit_rows.size());
  head.num_rows = head.num_written + static_cast<int64_t>(batch.best_rows.size());
  head.scale = config_.logit_scale;
  head.softcap = config_.logit_softcap;
  head.bias = weights_.head_bias();
  head.logits = output.logits;
  head.best = output.best;
  std::vector<int32_t>& head_rows = workspace_.head_rows;
  head_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  head_rows.insert(head_rows.end(), batch.best_rows.begin(), batch.best_rows.end());
  head.rows = head_rows;
  backend_.call_near_end(output.near_end);
  backend_.head(weights_.head_weight(), {rows, norm_of(weights_.network, Role::kFinalNorm), rows},
                head);
}

// Per-token tables of the step: rope, position-dependent scale of q.
void Decoder::prepare(const Batch& batch) {
  int64_t next_row = 0;
  for (const Span& span : batch.spans) {
    CHECK(span.first_row == next_row && span.num_rows > 0, "span of {} rows at {}, expected at {}",
          span.num_rows, span.first_row, next_row);
    prepare_span(span);
    next_row += span.num_rows;
  }
  CHECK(next_row == static_cast<int64_t>(batch.token_ids.size()), "{} rows in spans, {} tokens",
        next_row, batch.token_ids.size());
  for (size_t i = 0; i < ropes_.size(); ++i) fill_rope(batch.spans, i);
  if (config_.query_position_beta != 0) fill_query_scales(static_cast<size_t>(next_row));
}

void Decoder::prepare_span(const Span& span) {
  for (int32_t i = 0; i < span.num_rows; ++i) {
    workspace_.positions[static_cast<size_t>(int64_t{span.first_row} + i)] =
        span.rope_positions != nullptr ? span.rope_positions[i] : span.first_position + i;
  }
}

// Spans side by side that have their frequencies in common are one op.
void Decoder::fill_rope(std::span<const Span> spans, size_t rope_idx) {
  const RopeTable& rope = ropes_[rope_idx];
  for (size_t first = 0, end = 0; first < spans.size(); first = end) {
    while (end < spans.size() && spans[end].rope_epoch == spans[first].rope_epoch) ++end;
    const int32_t row = spans[first].first_row;
    const int32_t num_rows = spans[end - 1].first_row + spans[end - 1].num_rows - row;
    const int64_t offset = int64_t{row} * rope.half();
    backend_.rope_rows(
        {.frequencies = rope.frequencies(spans[first].rope_epoch, workspace_.frequencies),
         .factor = rope.factor(),
         .positions = std::span(workspace_.positions)
                          .subspan(static_cast<size_t>(row), static_cast<size_t>(num_rows)),
         .cos = workspace_.ropes[rope_idx].cos + offset,
         .sin = workspace_.ropes[rope_idx].sin + offset});
  }
}

void Decoder::fill_query_scales(size_t num_rows) {
  const std::span<float> scales = std::span(workspace_.query_scales).first(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    const int64_t turns = workspace_.positions[row] / config_.query_position_original;
    scales[row] = 1.0f + config_.query_position_beta * std::log(1.0f + static_cast<float>(turns));
  }
  backend_.upload(scales, workspace_.q_row_scale);
}

}  // namespace headrace
