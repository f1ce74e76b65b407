#include "model/layer_inputs.h"

#include <cmath>
#include <numbers>

namespace headrace {

namespace {

// Tokens beyond the table have its first row.
std::span<const int32_t> rows_of(Workspace& workspace, std::span<const int32_t> token_ids,
                                 int64_t num_rows) {
  if (workspace.layer_input_rows.empty()) return token_ids;
  const std::span<int32_t> rows = std::span(workspace.layer_input_rows).first(token_ids.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = token_ids[i] < num_rows ? token_ids[i] : 0;
  return rows;
}

}  // namespace

void make_layer_inputs(const StepContext& step, const RoleWeights& network,
                       std::span<const int32_t> token_ids) {
  const ModelConfig& config = step.config;
  Workspace& workspace = step.workspace;
  const int64_t width = config.hidden_size_per_layer_input;
  token_ids = rows_of(workspace, token_ids, config.vocab_size_per_layer_input);
  const float share = 1 / std::numbers::sqrt2_v<float>;
  step.backend.embed(network.weight(Role::kPerLayerEmbedding), token_ids,
                     share * std::sqrt(static_cast<float>(width)), nullptr, workspace.layer_inputs);
  const float scale = 1 / std::sqrt(static_cast<float>(config.hidden_size));
  step.backend.linear(network.weight(Role::kPerLayerProjection), workspace.hidden, step.num_rows,
                      {.scale = scale}, workspace.mlp);
  step.backend.norm({.kind = config.norm,
                     .x = workspace.mlp,
                     .weight = network.vector(Role::kPerLayerNorm),
                     .residual = workspace.layer_inputs,
                     .out = workspace.layer_inputs,
                     .num_rows = step.num_rows * config.num_layers(),
                     .width = width,
                     .eps = config.norm_eps,
                     .scale = share});
}

void add_layer_input(const StepContext& step, int layer_idx, const RoleWeights& weights,
                     const Branch& branch) {
  const int64_t width = step.config.hidden_size_per_layer_input;
  step.backend.activated_linear(weights.weight(Role::kPerLayerGate), branch.input, step.num_rows,
                                {.activation = step.config.activation,
                                 .factors = step.workspace.layer_inputs + layer_idx * width,
                                 .factor_stride = step.config.num_layers() * width},
                                step.workspace.mlp);
  step.backend.linear(weights.weight(Role::kPerLayerOut), step.workspace.mlp, step.num_rows,
                      branch.epilogue, branch.out);
}

}  // namespace headrace
