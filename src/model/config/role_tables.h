// Role tables, a file for each kind of layer, and what tables of several files share. For
// roles.cpp, which makes one list of them, and the files of tables.
#pragma once

#include "model/config/role_row.h"

namespace headrace {

std::span<const RoleRow> attention_roles();
std::span<const RoleRow> delta_roles();
std::span<const RoleRow> channel_delta_roles();
std::span<const RoleRow> latent_roles();
std::span<const RoleRow> short_conv_roles();
std::span<const RoleRow> scan_roles();
std::span<const RoleRow> dense_roles();
std::span<const RoleRow> plain_roles();
std::span<const RoleRow> per_layer_network_roles();  // of the network: inputs of each layer
std::span<const RoleRow> layer_end_roles();          // of each layer, after the MLP
std::span<const RoleRow> stream_network_roles();     // of the network: streams
std::span<const RoleRow> stream_roles();             // of each layer of a network with streams
std::span<const RoleRow> sparse_roles();
std::span<const RoleRow> expert_roles();
std::span<const RoleRow> dense_and_expert_roles();
std::span<const RoleRow> prediction_roles();  // of a head that predicts further tokens

// ---- Extents ------------------------------------------------------------------------------------

inline int64_t hidden(const ModelConfig& config, const LayerConfig&) { return config.hidden_size; }
inline int64_t q_heads(const ModelConfig&, const LayerConfig& layer) {
  return layer.num_attention_heads;
}
inline int64_t q_rows(const ModelConfig&, const LayerConfig& layer) {
  return int64_t{layer.num_attention_heads} * layer.head_dim;
}

}  // namespace headrace
