#include "model/weights.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/numeric.h"
#include "checkpoint/digest.h"
#include "model/weight_cache.h"
#include "model/weight_transpose.h"

namespace headrace {
namespace {

std::vector<float> read_vector(const FoundVector& found) {
  std::vector<float> values;
  for (const FoundVector::Piece& piece : found.pieces) {
    const DTypeRow& dtype = dtype_row(piece.tensor.dtype);
    const int64_t count = piece.tensor.num_elements();
    std::vector<float> stored(static_cast<size_t>(count));
    dtype.dequantise(piece.tensor.data, count / dtype.block_elements, stored.data());
    if (piece.order.empty()) values.insert(values.end(), stored.begin(), stored.end());
    for (const int32_t place : piece.order) values.push_back(stored[static_cast<size_t>(place)]);
  }
  values.resize(values.size() + static_cast<size_t>(found.num_ones), 1.0f);
  if (found.plus_one) {
    const auto first = static_cast<size_t>(found.pieces.front().size());
    for (size_t i = 0; i < first; ++i) values[i] = 1.0f + values[i];
  }
  if (found.minus_exp) {
    for (float& value : values) value = -std::exp(value);
  }
  return values;
}

constexpr size_t kWeightAlignment = 4096;

size_t aligned(size_t num_bytes) {
  return (num_bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

// Each vector begins at a boundary of its own, as packed weights do.
int64_t aligned_floats(int64_t count) { return divide_up(count, 16) * 16; }

size_t vector_bytes(const FoundWeights& found) {
  int64_t count = 0;
  for (const FoundRole& role : found.roles) {
    int64_t of_role = role.vector.num_ones;
    for (const FoundVector::Piece& piece : role.vector.pieces) {
      of_role += piece.size();
    }
    count += aligned_floats(of_role);
  }
  return static_cast<size_t>(count) * sizeof(float);
}

// Everything but the tensors' data that decides the packed bytes.
PackPlan describe_packing(const FoundWeights& found, const Backend& backend) {
  PackPlan plan;
  plan.memory_bytes = packed_bytes(found, backend);
  plan.num_threads = backend.num_threads();
  plan.description = backend.packing_id();
  for (const FoundRole& role : found.roles) {
    if (role.parts.empty()) continue;
    plan.description += fmt::format("\nrole {} of {} experts", static_cast<int>(role.pack.role),
                                    role.pack.num_experts);
    for (const WeightView& part : role.parts) {
      plan.description +=
          fmt::format("\n{} {} {} {} {} {} {} {} {}", part.name, weight_scheme_name(part.scheme),
                      dtype_name(part.values.dtype), part.num_outputs, part.num_inputs, part.bits,
                      part.group_size, part.block_outputs, part.zero_is_stored_minus_one);
      const FileDigest order = sha256(std::as_bytes(std::span(part.row_order)));
      for (const std::byte byte : order) plan.description += static_cast<char>(byte);
    }
  }
  return plan;
}

// Takes the weights in the order of packing, each into or from its place in the memory.
class Packer {
 public:
  Packer(const Checkpoint& checkpoint, Backend& backend, const LoadProgress& progress)
      : checkpoint_(checkpoint), backend_(backend), progress_(progress) {}

  // Packs into zeros, or adopts what was packed before.
  void pack_into(DevicePtr<std::byte> memory, size_t num_bytes) {
    memory_ = memory;
    num_bytes_ = num_bytes;
  }
  void adopt(DevicePtr<const std::byte> packed) { packed_ = packed; }
  void put_vectors(DevicePtr<float> vectors) { next_vector_ = vectors; }

  Result<RoleWeight> take(const FoundRole& found) {
    RoleWeight taken;
    if (!found.parts.empty()) taken.weight = TRY(take_weight(found));
    // Touching a small tensor may map megabytes around it: the system maps whole folios of its
    // file.
    const std::vector<float> vector = read_vector(found.vector);
    if (vector.empty()) return taken;
    taken.vector = next_vector_;
    backend_.upload(vector, next_vector_);
    next_vector_ += aligned_floats(std::ssize(vector));
    checkpoint_.release_pages();
    return taken;
  }

 private:
  Result<std::unique_ptr<PackedWeight>> take_weight(const FoundRole& found) {
    const size_t num_bytes = backend_.packed_bytes(found.parts, found.pack);
    std::unique_ptr<PackedWeight> weight;
    const auto offset = static_cast<ptrdiff_t>(done_);
    if (packed_) {
      weight = TRY(backend_.adopt(found.parts, found.pack, packed_ + offset));
    } else {
      std::vector<std::byte> transposes;
      weight = TRY(
          backend_.pack_into(with_transposes(found, &transposes), found.pack, memory_ + offset));
    }
    for (const WeightView& part : found.parts) release_pages(part);
    for (const WeightView& part : found.transposed_from) release_pages(part);
    done_ += aligned(num_bytes);
    if (progress_ && !packed_) progress_(done_, num_bytes_);
    return weight;
  }

  // The parts, with data where they are transposes.
  static std::vector<WeightView> with_transposes(const FoundRole& found,
                                                 std::vector<std::byte>* data) {
    std::vector<WeightView> parts = found.parts;
    if (found.transposed_from.empty()) return parts;
    size_t num_bytes = 0;
    for (const WeightView& part : parts) num_bytes += part.values.num_bytes;
    data->resize(num_bytes);
    std::span<std::byte> rest(*data);
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::span<std::byte> own = rest.first(parts[i].values.num_bytes);
      transpose_weight(found.transposed_from[i], own);
      parts[i].values.data = own.data();
      rest = rest.subspan(own.size());
    }
    return parts;
  }

  void release_pages(const WeightView& part) const {
    for (const TensorView* tensor :
         {&part.values, &part.scales, &part.zeros, &part.group_index, &part.global_scale}) {
      if (!tensor->empty()) checkpoint_.release_tensor(*tensor);
    }
  }

  const Checkpoint& checkpoint_;
  Backend& backend_;
  const LoadProgress& progress_;
  DevicePtr<std::byte> memory_;
  size_t num_bytes_ = 0;
  DevicePtr<const std::byte> packed_;
  DevicePtr<float> next_vector_;
  size_t done_ = 0;
};

Result<Weights> take_weights(const FoundWeights& found, Packer& packer) {
  Weights weights;
  for (const FoundRole& role : found.roles) {
    const auto layer = static_cast<size_t>(role.layer);
    if (role.layer != kNoLayer && layer >= weights.layers.size()) weights.layers.resize(layer + 1);
    RoleWeights& owner = role.layer == kNoLayer ? weights.network : weights.layers[layer];
    owner[role.role] = TRY(packer.take(role));
  }
  return weights;
}

}  // namespace

const FoundRole* FoundWeights::find(int layer, Role role) const {
  for (const FoundRole& found : roles) {
    if (found.layer == layer && found.role == role) return &found;
  }
  return nullptr;
}

const PackedWeight& RoleWeights::weight(Role role) const {
  const RoleWeight& found = (*this)[role];
  CHECK(found.weight != nullptr, "no weight for {}", role_row(role).name);
  return *found.weight;
}

const PackedWeight& Weights::embedding() const {
  return (shared == nullptr ? *this : *shared).network.weight(Role::kEmbedding);
}

DevicePtr<const float> Weights::head_bias() const {
  return (shared == nullptr ? *this : *shared).network.vector(Role::kHead);
}

Weights take_prediction(Weights* weights) {
  Weights head;
  head.layers.push_back(std::move(weights->layers.back()));
  weights->layers.pop_back();
  RoleWeights& layer = head.layers.back();
  head.network[Role::kFinalNorm] = std::move(layer[Role::kPredictionNorm]);
  head.shared = weights;
  return head;
}

const PackedWeight& Weights::head_weight() const {
  if (shared != nullptr) return shared->head_weight();
  const bool tied = network[Role::kHead].weight == nullptr;
  return network.weight(tied ? Role::kEmbedding : Role::kHead);
}

size_t packed_bytes(const FoundWeights& found, const Backend& backend) {
  size_t bytes = 0;
  for (const FoundRole& role : found.roles) {
    if (!role.parts.empty()) bytes += aligned(backend.packed_bytes(role.parts, role.pack));
  }
  return bytes;
}

Result<Weights> load_weights(const Checkpoint& checkpoint, const FoundWeights& found,
                             Backend& backend, const WeightCacheOptions& options,
                             const LoadProgress& progress) {
  WeightCache cache(checkpoint, describe_packing(found, backend), options);
  Packer packer(checkpoint, backend, progress);
  const size_t num_bytes = packed_bytes(found, backend);
  DeviceMemory vectors = TRY(backend.allocate(vector_bytes(found), MemoryUse::kWeights));
  packer.put_vectors(vectors.as<float>());
  if (std::optional<DeviceMemory> kept = TRY(cache.read(backend))) {
    packer.adopt(kept->data());
    Weights weights = TRY(take_weights(found, packer));
    weights.memory = *std::move(kept);
    weights.vectors = std::move(vectors);
    return weights;
  }
  if (cache.enabled()) cache.before_packing();
  DeviceMemory memory = TRY(backend.allocate(num_bytes, MemoryUse::kWeights));
  packer.pack_into(memory.data(), num_bytes);
  Weights weights = TRY(take_weights(found, packer));
  if (cache.enabled()) {
    const Status stored = cache.store(backend.read_view(memory.data(), num_bytes));
    if (!stored.ok()) {
      LOG(kWarning, "packed weights are not kept in the cache: {}", stored.error().message);
    }
  }
  weights.memory = std::move(memory);
  weights.vectors = std::move(vectors);
  return weights;
}

}  // namespace headrace
