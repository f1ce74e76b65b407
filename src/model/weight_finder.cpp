// find_weights(): every tensor of the network by role, whatever the file format calls it.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "checkpoint/quantisation.h"
#include "model/weights.h"

namespace headrace {
namespace {

// Row order that undoes a converter's interleaving of each head: row j of the network's first half
// is stored at 2j, of its second half at 2j + 1.
void append_unpermuted(int num_heads, int head_dim, std::vector<int32_t>* order) {
  const auto first = static_cast<int32_t>(order->size());
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head) {
    for (int row = 0; row < head_dim; ++row) {
      const int stored = row < half ? 2 * row : 2 * (row - half) + 1;
      order->push_back(first + head * head_dim + stored);
    }
  }
}

void append_identity(int64_t count, std::vector<int32_t>* order) {
  const auto first = static_cast<int32_t>(order->size());
  for (int32_t i = 0; i < count; ++i) order->push_back(first + i);
}

void reorder_rows(const std::vector<int32_t>& order, WeightView* weight) {
  if (order.empty()) return;
  std::vector<int32_t> composed;
  for (int32_t row : order) composed.push_back(static_cast<int32_t>(weight->stored_row(row)));
  weight->row_order = std::move(composed);
}

// One of q, k, v: how many rows it has and in which order they are stored.
struct Projection {
  std::string_view name;
  int num_heads;
  bool permuted;
};

class WeightFinder {
 public:
  WeightFinder(const Checkpoint& checkpoint, const ModelConfig& config,
               const Quantisation& quantisation)
      : checkpoint_(checkpoint),
        config_(config),
        quantisation_(quantisation),
        names_(tensor_names(checkpoint.kind())),
        block_(*family_named(config.family).block),
        is_gguf_(checkpoint.kind() == CheckpointKind::kGguf) {
    for (const std::string& name : checkpoint.names()) bases_.insert(base_of(name));
  }

  Result<FoundWeights> find();

 private:
  static std::string base_of(std::string_view name) {
    return std::string(name.substr(0, name.rfind('.')));
  }
  bool has(const std::string& base) const { return bases_.contains(base); }

  Status find_prefix();
  Result<WeightView> linear(const std::string& base, int64_t outputs, int64_t inputs);
  Result<FoundVector> vector(const std::string& base, std::string_view suffix, int64_t size,
                             const std::vector<int32_t>& order = {});
  Result<FoundVector> bias(const std::string& base, Presence presence, int64_t size,
                           const std::vector<int32_t>& order = {});
  Result<FoundVector> norm(const std::string& base, int64_t size);
  Result<FoundLayer> find_layer(int layer_idx);
  Status find_qkv(const std::string& prefix, const LayerConfig& layer, FoundLinear* qkv);
  Status find_fused_qkv(const std::string& base, const LayerConfig& layer, FoundLinear* qkv);
  Status find_mlp(const std::string& prefix, const LayerConfig& layer, FoundLayer* found);
  Status find_norms(const std::string& prefix, const LayerConfig& layer, FoundLayer* found);
  void warn_about_unused() const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const Quantisation& quantisation_;
  const TensorNames& names_;
  const BlockForm& block_;
  bool is_gguf_;
  NamePrefix prefix_;
  std::set<std::string, std::less<>> bases_;  // of all tensors in the file
  std::set<std::string, std::less<>> used_;
};

Status WeightFinder::find_prefix() {
  for (const NamePrefix& prefix : name_prefixes(checkpoint_.kind())) {
    if (!has(std::string(prefix.body) + std::string(names_.embedding))) continue;
    prefix_ = prefix;
    return {};
  }
  return make_error(ErrorCode::kNotFound, "{} has no tensor {}.weight under any known prefix",
                    checkpoint_.path(), names_.embedding);
}

Result<WeightView> WeightFinder::linear(const std::string& base, int64_t outputs, int64_t inputs) {
  WeightView weight = TRY(find_weight(checkpoint_, quantisation_, base));
  if (weight.num_outputs != outputs || weight.num_inputs != inputs) {
    return make_error(ErrorCode::kInvalidArgument, "weight {} is [{}, {}], but [{}, {}] is needed",
                      base, weight.num_outputs, weight.num_inputs, outputs, inputs);
  }
  used_.insert(base);
  return weight;
}

Result<FoundVector> WeightFinder::vector(const std::string& base, std::string_view suffix,
                                         int64_t size, const std::vector<int32_t>& order) {
  const std::string name = base + std::string(suffix);
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr) {
    return make_error(ErrorCode::kNotFound, "{} has no tensor {}, which is needed",
                      checkpoint_.path(), name);
  }
  const DTypeRow& dtype = dtype_row(tensor->dtype);
  if (tensor->num_elements() != size || dtype.dequantise == nullptr ||
      size % dtype.block_elements != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tensor {} is {} {}, but {} floating-point numbers are needed", name,
                      dtype.name, tensor->shape_string(), size);
  }
  used_.insert(base);
  FoundVector found;
  found.pieces.push_back({*tensor, order});
  return found;
}

Result<FoundVector> WeightFinder::bias(const std::string& base, Presence presence, int64_t size,
                                       const std::vector<int32_t>& order) {
  const bool there = checkpoint_.find(base + ".bias") != nullptr;
  if (presence == Presence::kAbsent || (presence == Presence::kIfPresent && !there)) {
    return FoundVector{};
  }
  return vector(base, ".bias", size, order);
}

Result<FoundVector> WeightFinder::norm(const std::string& base, int64_t size) {
  FoundVector found = TRY(vector(base, ".weight", size));
  found.plus_one = config_.norm_weight_plus_one;
  return found;
}

Status WeightFinder::find_fused_qkv(const std::string& base, const LayerConfig& layer,
                                    FoundLinear* qkv) {
  const int64_t kv_rows = int64_t{layer.num_key_value_heads} * layer.head_dim;
  const int64_t q_rows = int64_t{layer.num_attention_heads} * layer.head_dim;
  WeightView weight = TRY(linear(base, q_rows + 2 * kv_rows, config_.hidden_size));
  std::vector<int32_t> order;
  if (config_.permuted_qk) {
    append_unpermuted(layer.num_attention_heads + layer.num_key_value_heads, layer.head_dim,
                      &order);
    append_identity(kv_rows, &order);
  }
  reorder_rows(order, &weight);
  qkv->parts.push_back(std::move(weight));
  qkv->bias = TRY(bias(base, config_.qkv_bias, q_rows + 2 * kv_rows, order));
  return {};
}

Status WeightFinder::find_qkv(const std::string& prefix, const LayerConfig& layer,
                              FoundLinear* qkv) {
  const std::string fused = prefix + std::string(names_.qkv);
  if (has(fused)) return find_fused_qkv(fused, layer, qkv);
  const Projection projections[] = {
      {names_.q, layer.num_attention_heads, config_.permuted_qk},
      {names_.k, layer.num_key_value_heads, config_.permuted_qk},
      {names_.v, layer.num_key_value_heads, false},
  };
  for (const Projection& projection : projections) {
    const std::string base = prefix + std::string(projection.name);
    const int64_t rows = int64_t{projection.num_heads} * layer.head_dim;
    // Checked before the order is made, which is as long as the configuration says.
    WeightView weight = TRY(linear(base, rows, config_.hidden_size));
    std::vector<int32_t> order;
    if (projection.permuted) append_unpermuted(projection.num_heads, layer.head_dim, &order);
    reorder_rows(order, &weight);
    qkv->parts.push_back(std::move(weight));
    FoundVector piece = TRY(bias(base, config_.qkv_bias, rows, order));
    for (FoundVector::Piece& p : piece.pieces) qkv->bias.pieces.push_back(std::move(p));
  }
  const size_t num_biases = qkv->bias.pieces.size();
  if (num_biases != 0 && num_biases != 3) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} of the projections q, k and v under {} have a bias, but all or none must",
                      num_biases, prefix);
  }
  return {};
}

Status WeightFinder::find_mlp(const std::string& prefix, const LayerConfig& layer,
                              FoundLayer* found) {
  const int64_t width = layer.intermediate_size;
  const std::string fused = prefix + std::string(names_.gate_up);
  const std::string gate = prefix + std::string(names_.gate);
  FoundLinear& gate_up = found->gate_up;
  gate_up.role = WeightRole::kGateUp;
  if (has(fused) && !has(gate)) {
    const WeightView both = TRY(linear(fused, 2 * width, config_.hidden_size));
    gate_up.parts = {slice_rows(both, 0, width), slice_rows(both, width, width)};
    gate_up.bias = TRY(bias(fused, config_.mlp_bias, 2 * width));
  } else {
    for (std::string_view name : {names_.gate, names_.up}) {
      const std::string base = prefix + std::string(name);
      gate_up.parts.push_back(TRY(linear(base, width, config_.hidden_size)));
      FoundVector piece = TRY(bias(base, config_.mlp_bias, width));
      for (FoundVector::Piece& p : piece.pieces) gate_up.bias.pieces.push_back(std::move(p));
    }
    if (gate_up.bias.pieces.size() == 1) {
      return make_error(ErrorCode::kInvalidArgument,
                        "one of the gate and up projections under {} has a bias, but both or none "
                        "must",
                        prefix);
    }
  }
  const std::string down = prefix + std::string(names_.down);
  found->down.parts.push_back(TRY(linear(down, config_.hidden_size, width)));
  found->down.bias = TRY(bias(down, config_.mlp_bias, config_.hidden_size));
  return {};
}

Status WeightFinder::find_norms(const std::string& prefix, const LayerConfig& layer,
                                FoundLayer* found) {
  const NormNames& norm_names = is_gguf_ ? block_.gguf : block_.safetensors;
  for (size_t slot = 0; slot < norm_names.size(); ++slot) {
    if (norm_names[slot].empty()) continue;
    const std::string base = prefix + std::string(norm_names[slot]);
    found->norms[slot] = TRY(norm(base, config_.hidden_size));
  }
  if (config_.qk_norm == QkNorm::kNone) return {};
  const bool whole = config_.qk_norm == QkNorm::kWhole;
  const int64_t q_size = int64_t{layer.head_dim} * (whole ? layer.num_attention_heads : 1);
  const int64_t k_size = int64_t{layer.head_dim} * (whole ? layer.num_key_value_heads : 1);
  found->q_norm = TRY(norm(prefix + std::string(names_.q_norm), q_size));
  found->k_norm = TRY(norm(prefix + std::string(names_.k_norm), k_size));
  return {};
}

Result<FoundLayer> WeightFinder::find_layer(int layer_idx) {
  const LayerConfig& layer = config_.layers[static_cast<size_t>(layer_idx)];
  const std::string prefix = fmt::format("{}{}{}.", prefix_.body, names_.layer_prefix, layer_idx);
  FoundLayer found;
  TRY(find_qkv(prefix, layer, &found.qkv));
  const int64_t q_rows = int64_t{layer.num_attention_heads} * layer.head_dim;
  const std::string o = prefix + std::string(names_.o);
  found.o.parts.push_back(TRY(linear(o, config_.hidden_size, q_rows)));
  found.o.bias = TRY(bias(o, config_.o_bias, config_.hidden_size));
  TRY(find_mlp(prefix, layer, &found));
  TRY(find_norms(prefix, layer, &found));
  return found;
}

// A tensor that the network does not read may mean that it is another network.
void WeightFinder::warn_about_unused() const {
  static constexpr std::string_view kExpected[] = {"rotary_emb", "rope_f", "mtp.",
                                                   "visual",     "vision", "multi_modal_projector",
                                                   "lm_head",    "audio",  "nextn"};
  size_t num_unused = 0;
  std::string example;
  for (const std::string& base : bases_) {
    if (used_.contains(base)) continue;
    const auto expected = [&](std::string_view part) { return base.find(part) != base.npos; };
    if (std::any_of(std::begin(kExpected), std::end(kExpected), expected)) continue;
    if (num_unused++ == 0) example = base;
  }
  if (num_unused == 0) return;
  LOG(kWarning, "{} tensors of {} are not part of a {} network and are not used, for instance {}",
      num_unused, checkpoint_.path(), config_.family, example);
}

Result<FoundWeights> WeightFinder::find() {
  TRY(find_prefix());
  FoundWeights found;
  const std::string body(prefix_.body);
  found.embedding.role = WeightRole::kEmbedding;
  found.embedding.parts.push_back(
      TRY(linear(body + std::string(names_.embedding), config_.vocab_size, config_.hidden_size)));
  found.final_norm = TRY(norm(body + std::string(names_.final_norm), config_.hidden_size));
  for (int i = 0; i < config_.num_layers(); ++i) found.layers.push_back(TRY(find_layer(i)));
  if (!config_.tie_word_embeddings) {
    const std::string head = std::string(prefix_.head) + std::string(names_.head);
    found.head.parts.push_back(TRY(linear(head, config_.vocab_size, config_.hidden_size)));
  }
  warn_about_unused();
  return found;
}

}  // namespace

Result<FoundWeights> find_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  const Quantisation quantisation = TRY(read_quantisation(checkpoint));
  return WeightFinder(checkpoint, config, quantisation).find();
}

}  // namespace headrace
