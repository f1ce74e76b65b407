// Roles: what weights a network has, as tables. One row per weight says what files call it, its
// shape, how it is packed and when it is there; finding, memory plans, the key of the weight cache
// and loading iterate these rows, and what runs a layer asks for a weight by its role.
//
// A mixer or an MLP of a new kind is its rows here and the function that runs it (model/mixers.h,
// model/mlp.h). Names and shapes are those of the published files of each family. Constant data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/families.h"

namespace headrace {

enum class Role : uint8_t {
  kEmbedding,
  kFinalNorm,
  kHead,
  kAttentionNorm,
  kPostAttentionNorm,
  kMlpNorm,
  kPostMlpNorm,
  kQkv,  // rows of q, k and v
  kAttentionOut,
  kQNorm,
  kKNorm,
  kSinks,
  kGateUp,
  kDown,
  kRouter,
  kExpertGateUp,
  kExpertDown,
  kCount,
};
inline constexpr size_t kNumRoles = static_cast<size_t>(Role::kCount);

// A number of the shape, from the configuration of the network and of the layer.
using Extent = int64_t (*)(const ModelConfig&, const LayerConfig&);

// What files call a tensor, after the prefix of its place and without ".weight"; the first name
// that a file has counts. "{}" in a name is the number of the expert: a tensor for each. Without it
// a weight with experts is one tensor [experts, outputs, inputs].
struct RoleNames {
  std::array<std::string_view, 3> safetensors = {};
  std::array<std::string_view, 1> gguf = {};

  std::span<const std::string_view> in(CheckpointKind kind) const;  // none: it has none there
};

// One tensor of a weight; its rows follow those of the part before.
struct PartRow {
  RoleNames names = {};
  Extent outputs = nullptr;  // rows; of a vector: its size
  // The rows are this many heads of head_dim, whose halves a converter has interleaved where
  // ModelConfig::permuted_qk says so; null: rows are as stored.
  Extent heads = nullptr;
};

enum class RoleForm : uint8_t {
  kWeight,  // packed for the kernels, with a bias where `bias` says so
  kVector,  // small, float32
  kNorm,    // a vector that may be stored as w for 1 + w
};

enum class RolePlace : uint8_t { kBody, kHead, kLayer };  // whose prefix its names have

struct RoleRow {
  Role role;
  std::string_view name;  // for messages
  RoleForm form = RoleForm::kWeight;
  RolePlace place = RolePlace::kLayer;
  WeightRole pack = WeightRole::kLinear;
  std::array<PartRow, 3> parts = {};  // those in use have `outputs`
  RoleNames fused = {};               // a single tensor that holds all parts, row by row
  Extent inputs = nullptr;            // of a weight
  Extent experts = nullptr;           // null: no expert axis
  Presence ModelConfig::* bias = {};  // null: never
  int norm_slot = -1;                 // names are those of the family's block form
  bool (*present)(const ModelConfig&, const LayerConfig&) = nullptr;  // null: always

  std::span<const PartRow> used_parts() const;
};

// A row at its place in the network; of the network itself the layer is kNoLayer.
inline constexpr int kNoLayer = -1;
struct RoleSlot {
  int layer;
  const RoleRow* row;
};

// All weights of the network in the order of packing: the embedding first, then layer by layer, the
// head last. What the configuration leaves out is not among them.
std::vector<RoleSlot> role_slots(const ModelConfig& config);

const RoleRow& role_row(Role role);
// The names of a part of a row in files of the family that config names.
RoleNames role_names(const ModelConfig& config, const RoleRow& row, const PartRow& part);

// What has this kind of mixer or MLP.
struct MixerRow {
  MixerKind kind;
  std::string_view name;
  std::span<const RoleRow> roles;
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

// What a mixture of experts keeps in Workspace::mlp: where each array begins, in floats, at 64-byte
// boundaries. Shapes: backend.h.
struct ExpertRoom {
  ExpertRoom(const ModelConfig& config, const LayerConfig& layer, int64_t num_rows);

  int64_t num_floats = 0;  // of all
  int64_t logits, experts, weights, slots, rows, first_slot;
  int64_t slot_inputs, slot_activations, slot_outputs, mixed;
};

// kUnsupported names a value of the layer that is set, but that the function of neither its mixer
// nor its MLP would honour.
Status check_honoured(const LayerConfig& layer, int layer_idx);

}  // namespace headrace
