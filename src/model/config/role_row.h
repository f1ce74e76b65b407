// RoleRow: one weight of a network as data: what files call it, its shape, how it is packed and
// when it is there. The tables are in roles_*.cpp; roles.h makes one list of them. Constant data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"

namespace headrace {

enum class Role : uint8_t {
  kEmbedding,
  kPositions,
  kEmbeddingNorm,
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
  kDeltaInput,  // rows of q, k, v, z, b and a
  kDeltaTaps,
  kDeltaDecayRate,
  kDeltaDecayBias,
  kDeltaNorm,
  kDeltaOut,
  kChannelInput,  // rows of q, k, v and b
  kChannelTaps,
  kDecayDown,
  kDecayUp,
  kDeltaGateDown,
  kDeltaGateUp,
  kQueryDown,  // latent attention: of a query's low rank
  kQueryDownNorm,
  kQueryUp,
  kKvDown,  // rows of the latent and of the shared rotated key
  kKvDownNorm,
  kKeyUp,    // per head, from its query to the latent
  kValueUp,  // per head, from the latent to its value
  kIndexQuery,
  kIndexKey,
  kIndexKeyNorm,
  kIndexKeyNormBias,
  kIndexWeights,
  kShortConvInput,  // rows of the two gates and of what is convolved
  kShortConvTaps,
  kShortConvBias,
  kShortConvOut,
  kScanInput,  // rows of gate, x, B, C and time steps
  kScanTaps,
  kScanTapsBias,
  kScanDecay,
  kScanStepBias,
  kScanSkip,
  kScanNorm,
  kScanOut,
  kPerLayerEmbedding,   // what each layer gets of a token
  kPerLayerProjection,  // and of its embedding, for all layers
  kPerLayerNorm,
  kPerLayerGate,
  kPerLayerOut,
  kPostPerLayerNorm,
  kLayerScalar,
  kGateUp,
  kUp,  // of an MLP without a gate
  kDown,
  kRouter,
  kExpertGateUp,
  kExpertDown,
  kRouterSelectionBias,
  kSharedGateUp,
  kSharedDown,
  kSharedGate,
  kRouterScale,     // factors of the router's inputs
  kExpertScale,     // and of what the experts give
  kPostDenseNorm,   // of a dense MLP beside experts
  kExpertNorm,      // before these experts
  kPostExpertNorm,  // and after them
  kGate,            // of an MLP whose gate and up are products of their own
  kStreamIn,        // streams beside the residual one: from it,
  kStreamOut,       // and back to it
  kStreamRouterNorm,
  kStreamRouter,
  kStreamPredict,
  kStreamCorrect,
  kStreamScale,
  kLowRankDown,  // the branch of low rank beside attention
  kLowRankUp,
  kLowRankNorm,
  kPredictionTokenNorm,  // of a head that predicts further tokens: of the embedded token,
  kPredictionStateNorm,  // of the state before it,
  kPredictionJoin,       // from both to the width of the stream,
  kPredictionNorm,       // and after its layer
  kCount,
};
inline constexpr size_t kNumRoles = static_cast<size_t>(Role::kCount);

// A number of the shape, from the configuration of the network and of the layer.
using Extent = int64_t (*)(const ModelConfig&, const LayerConfig&);

// What files call a tensor, after the prefix of its place and without ".weight"; the first name
// that a file has counts. "{}" in a name is the number of the expert: a tensor for each. Without it
// a weight with experts is one tensor [experts, outputs, inputs].
struct RoleNames {
  std::array<std::string_view, 6> safetensors = {};
  std::array<std::string_view, 2> gguf = {};

  std::span<const std::string_view> in(CheckpointKind kind) const;  // none: it has none there
};

// One tensor of a weight; its rows follow those of the part before. A layer where it has no rows is
// without it.
struct PartRow {
  RoleNames names = {};
  Extent outputs = nullptr;  // rows; of a vector: its size
  // The rows are this many heads of head_dim, whose halves a converter has interleaved where
  // ModelConfig::permuted_qk says so; null: rows are as stored.
  Extent heads = nullptr;
  // A tensor of so many rows holds those of other parts as well: row i of this one is its row
  // stored_row(layer, i). Null: it holds this part alone.
  Extent stored_outputs = nullptr;
  int64_t (*stored_row)(const LayerConfig&, int64_t row) = nullptr;
};

enum class RoleForm : uint8_t {
  kWeight,  // packed for the kernels, with a bias where `bias` says so
  kVector,  // small, float32
  kNorm,    // a vector that may be stored as w for 1 + w
  kTaps,  // of convolved channels: stored [outputs, 1, inputs], kept [inputs, outputs of all parts]
  kDecay,  // a vector of -exp(w), of which safetensors files hold w
};

// Experts (or heads) whose rows lie in one tensor of all: expert e has `outputs` rows of the role
// from row e * stride + first on. transposed: rows of the tensor are inputs of the role.
struct SharedRows {
  RoleNames names = {};  // none: no such tensor
  Extent stride = nullptr;
  Extent first = nullptr;
  bool transposed = false;
};

enum class RolePlace : uint8_t {
  kBody,
  kHead,
  kLayer,
  kPrediction
};  // whose prefix its names have

struct RoleRow {
  Role role;
  std::string_view name;  // for messages
  RoleForm form = RoleForm::kWeight;
  RolePlace place = RolePlace::kLayer;
  WeightRole pack = WeightRole::kLinear;
  std::array<PartRow, 4> parts = {};  // those in use have `outputs`
  RoleNames fused = {};               // a single tensor that holds all parts, row by row
  Extent inputs = nullptr;            // of a weight
  Extent experts = nullptr;           // null: no expert axis
  SharedRows shared = {};             // where the file has no tensor of the part's names
  // Of a weight whether it has one, null: never; of a vector that is itself a bias, whether it is
  // there.
  Presence ModelConfig::* bias = {};
  bool row_norm = false;     // a norm of rows of the stream: may have a bias, or no weight
  bool optional = false;     // a vector that a file may lack
  bool scale_apart = false;  // of a weight: NAME.scale is a role of its own
  int norm_slot = -1;        // names are those of the family's block form
  bool (*present)(const ModelConfig&, const LayerConfig&) = nullptr;  // null: always

  std::span<const PartRow> used_parts() const;
};

}  // namespace headrace
