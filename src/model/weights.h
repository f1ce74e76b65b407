// Weights: the tensors of a checkpoint, found by role, checked and packed for a backend.
//
// Two steps, so that a memory plan needs only the first: find_weights() looks every tensor up and
// checks its shape (reads headers only), pack_weights() lays them out. Errors name the tensor, what
// was found and what is needed. Owner of packed weights: Model.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/families.h"
#include "model/model.h"

namespace headrace {

// ---- Found: views into the checkpoint -----------------------------------------------------------

// A vector of float32 to be made of one or more small tensors, one after the other.
struct FoundVector {
  struct Piece {
    TensorView tensor;
    std::vector<int32_t> order;  // element i is stored element order[i]; empty: as stored
  };
  std::vector<Piece> pieces;  // none: the network has no such vector
  bool plus_one = false;
};

struct FoundLinear {
  std::vector<WeightView> parts;
  WeightRole role = WeightRole::kLinear;
  FoundVector bias;
};

struct FoundLayer {
  FoundLinear qkv, o, gate_up, down;
  FoundVector q_norm, k_norm;
  std::array<FoundVector, kNumNorms> norms;
};

struct FoundWeights {
  FoundLinear embedding, head;  // head without parts: the embedding is used
  FoundVector final_norm;
  std::vector<FoundLayer> layers;
};

Result<FoundWeights> find_weights(const Checkpoint& checkpoint, const ModelConfig& config);

// ---- Packed: what the decoder reads -------------------------------------------------------------

struct Linear {
  std::unique_ptr<PackedWeight> weight;
  std::vector<float> bias;  // empty: none

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct AttentionWeights {
  Linear qkv;  // rows of q, k and v
  Linear o;
  std::vector<float> q_norm, k_norm;
};

struct MlpWeights {
  Linear gate_up;
  Linear down;
};

struct LayerWeights {
  AttentionWeights attention;
  MlpWeights mlp;
  std::array<std::vector<float>, kNumNorms> norms;  // empty: no norm there
};

struct Weights {
  Buffer memory;  // all packed weights, one after the other

  Linear embedding;
  Linear head;  // no weight: tied to the embedding
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;

  const PackedWeight& head_weight() const {
    return head.weight != nullptr ? *head.weight : *embedding.weight;
  }
};

// Bytes that the packed weights will hold, each at a page boundary.
size_t packed_bytes(const FoundWeights& found, const Backend& backend);
// Packs, or reads what an earlier start packed and kept; both give the same bytes. Each tensor's
// pages go back to the system as soon as it is packed.
Result<Weights> load_weights(const Checkpoint& checkpoint, const FoundWeights& found,
                             Backend& backend, const WeightCacheOptions& cache,
                             const LoadProgress& progress);

}  // namespace headrace
