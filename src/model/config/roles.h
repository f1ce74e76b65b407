// Roles: what weights a network has, as tables. One row per weight says what files call it, its
// shape, how it is packed and when it is there; finding, memory plans, the key of the weight cache
// and loading iterate these rows, and what runs a layer asks for a weight by its role.
//
// A mixer or an MLP of a new kind is its rows here and the function that runs it (model/mixers.h,
// model/mlp.h). Names and shapes are those of the published files of each family. Constant data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config/config.h"
#include "model/config/role_row.h"

namespace headrace {

// A row at its place in the network; of the network itself the layer is kNoLayer.
inline constexpr int kNoLayer = -1;
struct RoleSlot {
  int layer;
  const RoleRow* row;
};

// All weights of the network in the order of packing: the embedding first, then layer by layer,
// that of a head for further tokens after them (ModelConfig::weight_layer), the head last. What the
// configuration leaves out is not among them.
std::vector<RoleSlot> role_slots(const ModelConfig& config);

const RoleRow& role_row(Role role);
// The names of a part of a row, and of all its parts in one, in files of the family that config
// names.
RoleNames role_names(const ModelConfig& config, const RoleRow& row, const PartRow& part);
RoleNames fused_names(const ModelConfig& config, const RoleRow& row);

// What has this kind of mixer or MLP.
struct MixerRow {
  MixerKind kind;
  std::string_view name;
  std::span<const RoleRow> roles;
  // Floats of Workspace::mixer that its function uses for so many rows; null: none.
  int64_t (*room)(const ModelConfig&, const LayerConfig&, int64_t num_rows) = nullptr;
};
struct MlpRow {
  MlpKind kind;
  std::string_view name;
  std::span<const RoleRow> roles;
  // Floats of Workspace::mlp that its function uses for so many rows.
  int64_t (*room)(const ModelConfig&, const LayerConfig&, int64_t num_rows);
};
const MixerRow& mixer_row(MixerKind kind);
const MlpRow& mlp_row(MlpKind kind);

// What latent attention keeps in Workspace::mixer: where each array begins, in floats.
struct LatentRoom {
  LatentRoom(const LayerConfig& layer, int64_t num_rows);

  int64_t num_floats = 0;  // of all
  int64_t query_rank, queries, keys, latent_queries, latent_values, values;
  int64_t index_queries, index_keys, index_weights, kept;
};

// What a mixture of experts keeps in Workspace::mlp: where each array begins, in floats, at 64-byte
// boundaries. Shapes: backend.h.
struct ExpertRoom {
  ExpertRoom(const ModelConfig& config, const LayerConfig& layer, int64_t num_rows);

  int64_t num_floats = 0;  // of all
  int64_t logits, experts, weights, slots, rows, first_slot;
  int64_t slot_inputs, slot_activations, slot_outputs, mixed;
  int64_t shared, shared_activations, shared_factors;
};

// What a layer of the gated delta rule keeps in Workspace::mixer, likewise.
struct DeltaRoom {
  DeltaRoom(const LayerConfig& layer, int64_t num_rows);

  int64_t num_floats = 0;
  // Columns of q, k and v; of the whole projection, with z, b and a (kChannelDelta: with b).
  int64_t qkv_width, width;
  int64_t projection, mixed, out;
  int64_t low = 0, decay = 0, gate = 0;  // kChannelDelta
};

// What a state space layer keeps in Workspace::mixer, likewise.
struct ScanRoom {
  ScanRoom(const ScanConfig& scan, int64_t num_rows);

  int64_t num_floats = 0;
  int64_t projected, mixed, scanned;
};

// Of a dense MLP beside experts: its result, [M, hidden_size], which lies before the room of
// either.
inline int64_t dense_result_floats(const ModelConfig& config, int64_t num_rows) {
  return (num_rows * config.hidden_size + 15) / 16 * 16;
}

// kUnsupported names a value of the layer that is set, but that the function of neither its mixer
// nor its MLP would honour.
Status check_honoured(const LayerConfig& layer, int layer_idx);

}  // namespace headrace
