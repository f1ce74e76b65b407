#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/mixers.h"
#include "model/mlp.h"

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

void Decoder::forward(const Batch& batch, KvStore& kv, float* logits, const HiddenTap& tap) {
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  const StepContext step{config_, backend_, workspace_, kv, num_rows};
  const auto show = [&](int layer, const float* hidden) {
    if (tap) tap(layer, hidden, num_rows, config_.hidden_size);
  };
  prepare(batch);
  backend_.embed(*weights_.embedding.weight, batch.token_ids, config_.embedding_scale,
                 workspace_.hidden);
  show(-1, workspace_.hidden);
  for (int i = 0; i < config_.num_layers(); ++i) {
    run_layer(step, i);
    show(i, workspace_.hidden);
  }
  if (tap) show(config_.num_layers(), normed(step, weights_.final_norm, workspace_.hidden));
  compute_logits(step, batch, logits);
}

void Decoder::run_layer(const StepContext& step, int layer_idx) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(layer_idx)];
  const auto& norms = layer.norms;

  const float* x = normed(step, norms[kNormAttention], workspace_.hidden);
  run_attention(step, layer_idx, layer.attention, x, branch_output(norms[kNormPostAttention]));
  add_branch(step, norms[kNormPostAttention]);

  if (!config_.parallel_block) x = normed(step, norms[kNormMlp], workspace_.hidden);
  run_dense_mlp(step, layer.mlp, x, branch_output(norms[kNormPostMlp]));
  add_branch(step, norms[kNormPostMlp]);
}

// N x, or x itself where the block has no norm.
const float* Decoder::normed(const StepContext& step, const std::vector<float>& weight,
                             const float* x) {
  if (weight.empty()) return x;
  norm_rows(x, weight, step.num_rows, workspace_.normed);
  return workspace_.normed;
}

BranchOutput Decoder::branch_output(const std::vector<float>& post_norm) const {
  if (!post_norm.empty()) return {.out = workspace_.branch};
  return {.out = workspace_.hidden, .residual = workspace_.hidden, .scale = config_.residual_scale};
}

// x += N(branch); without a norm the branch is on the residual stream already.
void Decoder::add_branch(const StepContext& step, const std::vector<float>& post_norm) {
  if (post_norm.empty()) return;
  backend_.norm(NormArgs{.kind = config_.norm,
                         .x = workspace_.branch,
                         .weight = post_norm.data(),
                         .residual = workspace_.hidden,
                         .out = workspace_.hidden,
                         .num_rows = step.num_rows,
                         .width = config_.hidden_size,
                         .eps = config_.norm_eps,
                         .scale = config_.residual_scale});
}

void Decoder::norm_rows(const float* x, const std::vector<float>& weight, int64_t num_rows,
                        float* out) {
  backend_.norm(NormArgs{.kind = config_.norm,
                         .x = x,
                         .weight = weight.data(),
                         .out = out,
                         .num_rows = num_rows,
                         .width = config_.hidden_size,
                         .eps = config_.norm_eps});
}

void Decoder::compute_logits(const StepContext& step, const Batch& batch, float* logits) {
  const auto width = static_cast<size_t>(config_.hidden_size);
  float* rows = workspace_.logit_rows;
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int32_t row = batch.logit_rows[i];
    CHECK(row >= 0 && row < step.num_rows, "logits of row {} of {}", row, step.num_rows);
    std::memcpy(rows + i * width, workspace_.hidden + static_cast<size_t>(row) * width,
                width * sizeof(float));
  }
  const auto num_rows = static_cast<int64_t>(batch.logit_rows.size());
  if (num_rows == 0) return;
  norm_rows(rows, weights_.final_norm, num_rows, rows);
  const Epilogue epilogue{.scale = config_.logit_scale, .softcap = config_.logit_softcap};
  backend_.linear(weights_.head_weight(), rows, num_rows, epilogue, logits);
}

// Per-token tables of the step: spans, rope, position-dependent scale of q.
void Decoder::prepare(const Batch& batch) {
  workspace_.spans.clear();
  int64_t next_row = 0;
  for (const BatchSpan& span : batch.spans) {
    CHECK(span.first_row == next_row && span.num_rows > 0, "span of {} rows at {}, expected at {}",
          span.num_rows, span.first_row, next_row);
    next_row += span.num_rows;
    prepare_span(span);
  }
  CHECK(next_row == static_cast<int64_t>(batch.token_ids.size()), "{} rows in spans, {} tokens",
        next_row, batch.token_ids.size());
}

void Decoder::prepare_span(const BatchSpan& span) {
  workspace_.spans.push_back(
      {span.first_row, span.num_rows, span.first_position, span.block_table});
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const int64_t offset = int64_t{span.first_row} * ropes_[i].half();
    ropes_[i].fill(span, {workspace_.scratch, workspace_.scratch_size},
                   workspace_.ropes[i].cos + offset, workspace_.ropes[i].sin + offset);
  }
  if (config_.query_position_beta == 0) return;
  for (int32_t row = 0; row < span.num_rows; ++row) {
    const int64_t turns = (span.first_position + row) / config_.query_position_original;
    workspace_.q_row_scale[span.first_row + row] =
        1.0f + config_.query_position_beta * std::log(1.0f + static_cast<float>(turns));
  }
}

}  // namespace headrace
