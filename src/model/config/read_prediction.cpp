#include "model/config/read_prediction.h"

#include <algorithm>

#include "model/config/families.h"
#include "model/config/roles.h"

namespace headrace {
namespace {

bool has_projection(const Checkpoint& checkpoint, const ModelConfig& config) {
  const RoleRow& row = role_row(Role::kPredictionJoin);
  const CheckpointKind kind = checkpoint.kind();
  for (const NamePrefix& prefix : name_prefixes(kind, &family_named(config.family))) {
    const std::string before = prediction_prefix(kind, config, prefix.body, false);
    for (const std::string_view name : row.parts[0].names.in(kind)) {
      const std::string tensor = before + std::string(name) + ".";
      const auto is_of_it = [&](const std::string& each) { return each.starts_with(tensor); };
      if (std::ranges::any_of(checkpoint.names(), is_of_it)) return true;
    }
  }
  return false;
}

}  // namespace

// Its layer is one of those that keep keys and values of all positions.
void read_prediction(const Checkpoint& checkpoint, ModelConfig* config) {
  if (family_named(config->family).prediction == nullptr) return;
  if (!has_projection(checkpoint, *config)) return;
  const auto is_attention = [](const LayerConfig& layer) {
    return layer.mixer == MixerKind::kAttention || layer.mixer == MixerKind::kLatent;
  };
  const auto last = std::find_if(config->layers.rbegin(), config->layers.rend(), is_attention);
  if (last != config->layers.rend()) config->prediction = {*last};
}

std::string prediction_prefix(CheckpointKind kind, const ModelConfig& config, std::string_view body,
                              bool of_layer) {
  const Family& family = family_named(config.family);
  const PredictionRow& row = *family.prediction;
  const std::string_view own = of_layer ? row.layer_prefix : row.prefix;
  if (kind != CheckpointKind::kGguf && !own.empty()) return std::string(own);
  return fmt::format("{}{}{}.", body, layer_prefix(kind, &family), config.num_layers());
}

ModelConfig without_prediction(ModelConfig config) {
  config.prediction.clear();
  return config;
}

ModelConfig prediction_network(const ModelConfig& config) {
  ModelConfig head = config;
  head.layers = config.prediction;
  head.prediction.clear();
  head.joins_states = true;
  return head;
}

}  // namespace headrace
