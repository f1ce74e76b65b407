#include "cli/inspect_model.h"

#include <algorithm>

namespace headrace {
namespace {

namespace json = boost::json;

// The values of a field over all layers that have it, each once: a number if there is one alone.
template <typename T>
json::value values_of(const ModelConfig& config, T LayerConfig::* field) {
  json::array values;
  for (const LayerConfig& layer : config.layers) {
    const auto value = static_cast<int64_t>(layer.*field);
    if (value > 0 && std::ranges::find(values, json::value(value)) == values.end()) {
      values.push_back(value);
    }
  }
  if (values.empty()) return 0;
  return values.size() == 1 ? values.front() : json::value(std::move(values));
}

// How many layers have each kind of mixer or MLP, under its name.
template <typename Name>
json::object count_kinds(const ModelConfig& config, const Name& name_of) {
  json::object counts;
  for (const LayerConfig& layer : config.layers) {
    const auto [entry, is_new] = counts.emplace(name_of(layer), 1);
    if (!is_new) entry->value() = entry->value().get_int64() + 1;
  }
  return counts;
}

json::object describe_experts(const ExpertConfig& experts) {
  return {{"num_experts", experts.num_experts},
          {"num_experts_per_token", experts.num_experts_per_token},
          {"intermediate_size", experts.intermediate_size},
          {"shared_intermediate_size", experts.shared_intermediate_size}};
}

// Whether a router sends a token to some of these weights. Those of heads and of streams lie in
// stacks too, but every token meets them all.
bool is_routed(Role role) { return role == Role::kExpertGateUp || role == Role::kExpertDown; }

}  // namespace

json::object describe_config(const ModelConfig& config) {
  const auto is_sliding = [](const LayerConfig& layer) { return layer.sliding_window > 0; };
  json::object described{
      {"family", config.family},
      {"architecture", config.architecture},
      {"dtype", config.source_dtype},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"num_hidden_layers", config.num_layers()},
      {"mixers", count_kinds(config, [](const auto& l) { return mixer_row(l.mixer).name; })},
      {"mlps", count_kinds(config, [](const auto& l) { return mlp_row(l.mlp).name; })},
      {"num_attention_heads", values_of(config, &LayerConfig::num_attention_heads)},
      {"num_key_value_heads", values_of(config, &LayerConfig::num_key_value_heads)},
      {"head_dim", values_of(config, &LayerConfig::head_dim)},
      {"intermediate_size", values_of(config, &LayerConfig::intermediate_size)},
      {"sliding_layers", std::ranges::count_if(config.layers, is_sliding)},
      {"max_position_embeddings", config.max_position_embeddings},
      {"tie_word_embeddings", config.tie_word_embeddings}};
  if (!config.prediction.empty()) described["prediction_head"] = true;
  for (const LayerConfig& layer : config.layers) {
    if (layer.experts.num_experts == 0) continue;
    described["experts"] = describe_experts(layer.experts);
    break;
  }
  return described;
}

int64_t active_parameters(const ModelConfig& config, const FoundWeights& found) {
  int64_t active = 0;
  const bool has_head = found.find(kNoLayer, Role::kHead) != nullptr;
  for (const FoundRole& role : found.roles) {
    if (role.layer >= config.num_layers()) continue;  // of the head for further tokens
    const bool is_embedding = role.pack.role == WeightRole::kEmbedding;
    if (is_embedding && (role.role != Role::kEmbedding || has_head)) continue;
    int64_t elements = 0;
    for (const WeightView& part : role.parts) elements += part.num_outputs * part.num_inputs;
    for (const FoundVector::Piece& piece : role.vector.pieces) {
      elements += piece.tensor.num_elements();
    }
    if (is_routed(role.role)) {
      const ExpertConfig& experts = config.layers[static_cast<size_t>(role.layer)].experts;
      elements = elements / experts.num_experts * experts.num_experts_per_token;
    }
    active += elements;
  }
  return active;
}

size_t kv_bytes_of_token(const CacheLayout& layout) {
  size_t bytes = 0;
  for (const CacheRule& rule : layout.rules) {
    if (rule.policy != CachePolicy::kFull) continue;
    bytes += static_cast<size_t>(rule.num_columns) * layout.block_bytes / kBlockTokens;
  }
  return bytes;
}

size_t state_bytes_of_sequence(const CacheLayout& layout, const Backend& backend) {
  size_t bytes = 0;
  for (const CachePlace& place : layout.places) {
    if (place.policy != CachePolicy::kState) continue;
    for (const CachePiece& piece : place.pieces) {
      for (const KvPlane& plane : piece.planes) {
        bytes += cache_plane_bytes(plane, place.policy, backend);
      }
    }
  }
  return bytes;
}

}  // namespace headrace
