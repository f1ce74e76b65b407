#include "model/weights.h"

#include <utility>

namespace headrace {
namespace {

// In the order of packing.
std::vector<const FoundLinear*> linears_of(const FoundWeights& found) {
  std::vector<const FoundLinear*> linears = {&found.embedding};
  for (const FoundLayer& layer : found.layers) {
    for (const FoundLinear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      linears.push_back(linear);
    }
  }
  if (!found.head.parts.empty()) linears.push_back(&found.head);
  return linears;
}

std::vector<float> read_vector(const FoundVector& found) {
  std::vector<float> values;
  for (const FoundVector::Piece& piece : found.pieces) {
    const DTypeRow& dtype = dtype_row(piece.tensor.dtype);
    const int64_t count = piece.tensor.num_elements();
    std::vector<float> stored(static_cast<size_t>(count));
    dtype.dequantise(piece.tensor.data, count / dtype.block_elements, stored.data());
    for (size_t i = 0; i < stored.size(); ++i) {
      values.push_back(piece.order.empty() ? stored[i]
                                           : stored[static_cast<size_t>(piece.order[i])]);
    }
  }
  if (found.plus_one) {
    for (float& value : values) value = 1.0f + value;
  }
  return values;
}

class Packer {
 public:
  Packer(const Checkpoint& checkpoint, Backend& backend, const LoadProgress& progress, size_t total)
      : checkpoint_(checkpoint), backend_(backend), progress_(progress), total_(total) {}

  Result<Linear> pack(const FoundLinear& found) {
    Linear linear;
    linear.weight = TRY(backend_.pack(found.parts, found.role));
    linear.bias = read_vector(found.bias);
    for (const WeightView& part : found.parts) release_pages(part);
    done_ += linear.weight->num_bytes();
    if (progress_) progress_(done_ < total_ ? done_ : total_, total_);
    return linear;
  }

 private:
  void release_pages(const WeightView& part) const {
    for (const TensorView* tensor :
         {&part.values, &part.scales, &part.zeros, &part.group_index, &part.global_scale}) {
      if (!tensor->empty()) checkpoint_.release_tensor(*tensor);
    }
  }

  const Checkpoint& checkpoint_;
  Backend& backend_;
  const LoadProgress& progress_;
  size_t total_;
  size_t done_ = 0;
};

Result<LayerWeights> pack_layer(const FoundLayer& found, Packer& packer) {
  LayerWeights layer;
  layer.attention.qkv = TRY(packer.pack(found.qkv));
  layer.attention.o = TRY(packer.pack(found.o));
  layer.attention.q_norm = read_vector(found.q_norm);
  layer.attention.k_norm = read_vector(found.k_norm);
  layer.mlp.gate_up = TRY(packer.pack(found.gate_up));
  layer.mlp.down = TRY(packer.pack(found.down));
  for (size_t i = 0; i < found.norms.size(); ++i) layer.norms[i] = read_vector(found.norms[i]);
  return layer;
}

}  // namespace

size_t packed_bytes(const FoundWeights& found, const Backend& backend) {
  size_t bytes = 0;
  for (const FoundLinear* linear : linears_of(found)) {
    bytes += backend.packed_bytes(linear->parts, linear->role);
  }
  return bytes;
}

Result<Weights> pack_weights(const Checkpoint& checkpoint, const FoundWeights& found,
                             Backend& backend, const LoadProgress& progress) {
  Packer packer(checkpoint, backend, progress, packed_bytes(found, backend));
  Weights weights;
  weights.embedding = TRY(packer.pack(found.embedding));
  for (const FoundLayer& layer : found.layers) {
    weights.layers.push_back(TRY(pack_layer(layer, packer)));
  }
  if (!found.head.parts.empty()) weights.head = TRY(packer.pack(found.head));
  weights.final_norm = read_vector(found.final_norm);
  return weights;
}

}  // namespace headrace
