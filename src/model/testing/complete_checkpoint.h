// A checkpoint in memory that has every tensor which a configuration asks for. For tests only.
#pragma once

#include <fmt/format.h>

#include <string>

#include "model/config/families.h"
#include "model/config/roles.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace::testing {

// Two layers with every role that there is: the first dense, the second with experts.
inline ModelConfig full_config() {
  ModelConfig config;
  config.family = "gemma2";  // norms at all four places
  config.vocab_size = 20;
  config.hidden_size = 32;
  config.max_position_embeddings = 64;
  config.qkv_bias = config.o_bias = config.mlp_bias = Presence::kRequired;
  config.router_bias = Presence::kRequired;
  LayerConfig layer;
  layer.num_attention_heads = 4;
  layer.num_key_value_heads = 2;
  layer.head_dim = 8;
  layer.qk_norm = QkNorm::kPerHead;
  layer.attention_sinks = true;
  layer.intermediate_size = 48;
  config.layers.push_back(layer);
  layer.intermediate_size = 0;
  layer.mlp = MlpKind::kExperts;
  layer.experts.num_experts = 3;
  layer.experts.num_experts_per_token = 2;
  layer.experts.intermediate_size = 24;
  layer.experts.selection_bias = true;
  layer.experts.shared_intermediate_size = 40;
  layer.experts.shared_gate = true;
  config.layers.push_back(layer);
  return config;
}

inline bool has_bias(const ModelConfig& config, const RoleRow& row) {
  return row.bias != nullptr && config.*row.bias == Presence::kRequired;
}

// A checkpoint that has what the tables ask for, under the first name of each tensor.
class CompleteCheckpoint {
 public:
  CompleteCheckpoint(CheckpointKind kind, const ModelConfig& config)
      : checkpoint_(kind), config_(config) {
    if (kind == CheckpointKind::kSafetensors) checkpoint_.file("config.json", "{}");
    for (const RoleSlot& slot : role_slots(config)) {
      for (const PartRow& part : slot.row->used_parts()) add(slot, part);
    }
  }
  FakeCheckpoint& get() { return checkpoint_; }

 private:
  void add(const RoleSlot& slot, const PartRow& part) {
    static const LayerConfig kNone;
    const RoleRow& row = *slot.row;
    const LayerConfig& layer =
        slot.layer == kNoLayer ? kNone : config_.layers[static_cast<size_t>(slot.layer)];
    const CheckpointKind kind = checkpoint_.kind();
    std::string base = kind == CheckpointKind::kGguf ? "" : "model.";
    if (row.place == RolePlace::kHead) base = "";
    if (row.place == RolePlace::kLayer)
      base += fmt::format("{}{}.", layer_prefix(kind), slot.layer);
    base += role_names(config_, row, part).in(kind).front();
    const int64_t outputs = part.outputs(config_, layer);
    if (outputs == 0) return;
    if (row.form != RoleForm::kWeight) {
      checkpoint_.tensor(base + ".weight", {outputs});
      return;
    }
    const int64_t inputs = row.inputs(config_, layer);
    const int64_t experts = row.experts == nullptr ? 0 : row.experts(config_, layer);
    if (base.find("{}") != base.npos) {
      for (int64_t e = 0; e < experts; ++e) {
        checkpoint_.tensor(fmt::format(fmt::runtime(base), e) + ".weight", {outputs, inputs});
      }
    } else if (experts > 0) {
      checkpoint_.tensor(base + ".weight", {experts, outputs, inputs});
    } else {
      checkpoint_.tensor(base + ".weight", {outputs, inputs});
    }
    if (has_bias(config_, row)) checkpoint_.tensor(base + ".bias", {outputs});
  }

  FakeCheckpoint checkpoint_;
  const ModelConfig config_;
};

inline constexpr CheckpointKind kKinds[] = {CheckpointKind::kSafetensors, CheckpointKind::kGguf};

}  // namespace headrace::testing
