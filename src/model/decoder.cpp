#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/numeric.h"
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

void Decoder::forward(const Batch& batch, KvStore& kv, const StepOutput& output,
                      const HiddenTap& tap) {
  const auto num_rows = static_cast<int64_t>(batch.token_ids.size());
  const StepContext step{config_, backend_, workspace_, kv, batch.spans, num_rows};
  const auto show = [&](int layer) {
    if (tap) tap(layer, workspace_.hidden, num_rows, config_.hidden_size);
  };
  prepare(batch);
  backend_.embed(weights_.network.weight(Role::kEmbedding), batch.token_ids,
                 config_.embedding_scale, workspace_.hidden);
  show(-1);
  for (int i = 0; i < config_.num_layers(); ++i) {
    run_layer(step, i);
    show(i);
  }
  if (tap) show_final_norm(step, tap);
  if (output.finite != nullptr) check_rows(num_rows, output.finite);
  compute_logits(step, batch, output);
}

void Decoder::run_layer(const StepContext& step, int layer_idx) {
  const RoleWeights& layer = weights_.layers[static_cast<size_t>(layer_idx)];

  Branch mixer = branch_of(layer, Role::kAttentionNorm, Role::kPostAttentionNorm);
  if (config_.parallel_block) mixer.out = workspace_.branch;  // the MLP reads x as well
  run_mixer(step, layer_idx, layer, mixer);

  const Role before_mlp = config_.parallel_block ? Role::kAttentionNorm : Role::kMlpNorm;
  Branch mlp = branch_of(layer, before_mlp, Role::kPostMlpNorm);
  if (config_.parallel_block) mlp.epilogue.residual = workspace_.branch;
  run_mlp(step, layer_idx, layer, mlp);
}

Norm Decoder::norm_of(const RoleWeights& weights, Role role) const {
  return {config_.norm, weights.vector(role), config_.norm_eps};
}

// x += post_norm(branch(norm(x))) on the residual stream x; a norm without weight is the identity.
Branch Decoder::branch_of(const RoleWeights& weights, Role norm, Role post_norm) const {
  return {.input = {workspace_.hidden, norm_of(weights, norm), workspace_.normed},
          .epilogue = {.residual = workspace_.hidden,
                       .scale = config_.residual_scale,
                       .post_norm = norm_of(weights, post_norm),
                       .branch = workspace_.branch},
          .out = workspace_.hidden};
}

void Decoder::show_final_norm(const StepContext& step, const HiddenTap& tap) {
  backend_.norm(NormArgs{.kind = config_.norm,
                         .x = workspace_.hidden,
                         .weight = weights_.network.vector(Role::kFinalNorm),
                         .out = workspace_.normed,
                         .num_rows = step.num_rows,
                         .width = config_.hidden_size,
                         .eps = config_.norm_eps});
  tap(config_.num_layers(), workspace_.normed, step.num_rows, config_.hidden_size);
}

void Decoder::compute_logits(const StepContext& step, const Batch& batch,
                             const StepOutput& output) {
  const auto width = static_cast<size_t>(config_.hidden_size);
  float* rows = workspace_.logit_rows;
  float* next = rows;
  for (const auto wanted : {batch.logit_rows, batch.best_rows}) {
    for (const int32_t row : wanted) {
      CHECK(row >= 0 && row < step.num_rows, "logits of row {} of {}", row, step.num_rows);
      std::memcpy(next, workspace_.hidden + static_cast<size_t>(row) * width,
                  width * sizeof(float));
      next += width;
    }
  }
  HeadArgs head;
  head.num_written = static_cast<int64_t>(batch.logit_rows.size());
  head.num_rows = head.num_written + static_cast<int64_t>(batch.best_rows.size());
  head.scale = config_.logit_scale;
  head.softcap = config_.logit_softcap;
  head.logits = output.logits;
  head.best = output.best;
  backend_.head(weights_.head_weight(), {rows, norm_of(weights_.network, Role::kFinalNorm), rows},
                head);
}

void Decoder::check_rows(int64_t num_rows, bool* finite) const {
  constexpr uint32_t kExponent = 0x7F800000u;
  const float* value = workspace_.hidden;
  for (int64_t row = 0; row < num_rows; ++row) {
    uint32_t bad = 0;
    for (int64_t i = 0; i < config_.hidden_size; ++i) {
      bad |= (float_to_bits(*value++) & kExponent) == kExponent ? 1u : 0u;
    }
    finite[row] = bad == 0;
  }
}

// Per-token tables of the step: spans, rope, position-dependent scale of q.
void Decoder::prepare(const Batch& batch) {
  int64_t next_row = 0;
  for (const Span& span : batch.spans) {
    CHECK(span.first_row == next_row && span.num_rows > 0, "span of {} rows at {}, expected at {}",
          span.num_rows, span.first_row, next_row);
    next_row += span.num_rows;
    prepare_span(span);
  }
  CHECK(next_row == static_cast<int64_t>(batch.token_ids.size()), "{} rows in spans, {} tokens",
        next_row, batch.token_ids.size());
}

void Decoder::prepare_span(const Span& span) {
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
