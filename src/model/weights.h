// Weights: the tensors of a checkpoint, found by role, checked and packed for a backend.
//
// Two steps, so that a memory plan needs only the first: find_weights() looks every tensor up and
// checks its shape (reads headers only), load_weights() lays them out. Both, and all between them,
// go through one list of roles (model/config/roles.h) in its order. Errors name the tensor, what
// was found and what is needed. Owner of packed weights: Model.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/config/roles.h"
#include "model/model_options.h"

namespace headrace {

// ---- Found: views into the checkpoint -----------------------------------------------------------

// A vector of float32 to be made of one or more small tensors, one after the other.
struct FoundVector {
  struct Piece {
    TensorView tensor;
    // Element i is stored element order[i], of which there may be fewer; empty: as stored.
    std::vector<int32_t> order;

    int64_t size() const { return order.empty() ? tensor.num_elements() : std::ssize(order); }
  };
  std::vector<Piece> pieces;  // none: the network has no such vector
  bool plus_one = false;      // the first piece is stored less one
  bool minus_exp = false;     // of what is stored
  int64_t num_ones = 0;       // instead of pieces: ones
};

// What fills one role of one layer.
struct FoundRole {
  int layer = kNoLayer;
  Role role = Role::kEmbedding;
  PackForm pack = WeightRole::kLinear;
  // Of a weight, stacked by rows, expert by expert; none: the role is a vector.
  std::vector<WeightView> parts;
  // Of parts that the file holds transposed: what they are made of; parts are then without data.
  std::vector<WeightView> transposed_from;
  FoundVector vector;  // the weight's bias, or the vector itself
};

// In the order of packing.
struct FoundWeights {
  std::vector<FoundRole> roles;
  // Why the head for further tokens that the configuration has is not among them; empty: it is.
  std::string lacks_prediction;

  // Null: the network has no such weight.
  const FoundRole* find(int layer, Role role) const;
};

// kNotFound for a tensor that is not there, kInvalidArgument for one of another shape, a vector
// that is not of floating-point numbers, and biases of some parts only. A head for further tokens
// of which this is so is left out.
Result<FoundWeights> find_weights(const Checkpoint& checkpoint, const ModelConfig& config);

// ---- Packed: what the decoder reads -------------------------------------------------------------

// A weight with its bias, or a vector.
struct RoleWeight {
  std::unique_ptr<PackedWeight> weight;  // null: the role is a vector, or is not there
  DevicePtr<const float> vector;         // null: no bias, or no such vector
};

// The weights of one layer, or those of the network.
class RoleWeights {
 public:
  const RoleWeight& operator[](Role role) const { return weights_[static_cast<size_t>(role)]; }
  RoleWeight& operator[](Role role) { return weights_[static_cast<size_t>(role)]; }

  const PackedWeight& weight(Role role) const;  // which is there
  DevicePtr<const float> vector(Role role) const { return (*this)[role].vector; }

 private:
  std::array<RoleWeight, kNumRoles> weights_;
};

struct Weights {
  DeviceMemory memory;   // all packed weights, one after the other
  DeviceMemory vectors;  // and all vectors

  RoleWeights network;
  std::vector<RoleWeights> layers;
  // Of a head for further tokens: the network, whose embedding and output matrix it has. Else null.
  const Weights* shared = nullptr;

  const PackedWeight& embedding() const;
  // The embedding, unless the network has a head of its own.
  const PackedWeight& head_weight() const;
  DevicePtr<const float> head_bias() const;
};

// Takes what belongs to the head for further tokens, the layer after the last, out of the weights,
// which keep the memory and outlive it.
Weights take_prediction(Weights* weights);

// Bytes that the packed weights will hold, each at a page boundary.
size_t packed_bytes(const FoundWeights& found, const Backend& backend);
// Packs, or reads what an earlier start packed and kept; both give the same bytes. Each tensor's
// pages go back to the system as soon as it is packed.
Result<Weights> load_weights(const Checkpoint& checkpoint, const FoundWeights& found,
                             Backend& backend, const WeightCacheOptions& cache,
                             const LoadProgress& progress);

}  // namespace headrace
