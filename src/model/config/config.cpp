#include "model/config/config.h"

namespace headrace {
namespace {

struct ActivationRow {
  std::string_view name;
  Activation activation;
};
constexpr ActivationRow kActivations[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu", Activation::kGelu},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kReluSquared},
    {"xielu", Activation::kXielu},
};

}  // namespace

void clear_attention(LayerConfig* layer) {
  LayerConfig cleared;
  cleared.mixer = layer->mixer;
  cleared.mlp = layer->mlp;
  cleared.intermediate_size = layer->intermediate_size;
  cleared.experts = layer->experts;
  cleared.delta = layer->delta;
  *layer = cleared;
}

int64_t num_experts_before(const ModelConfig& config, int layer_idx) {
  int64_t count = 0;
  for (int i = 0; i < layer_idx; ++i) {
    count += config.layers[static_cast<size_t>(i)].experts.num_experts;
  }
  return count;
}

Result<Activation> activation_named(std::string_view name) {
  for (const ActivationRow& row : kActivations) {
    if (row.name == name) return row.activation;
  }
  return make_error(
      ErrorCode::kUnsupported,
      "activation '{}' is not supported; silu, gelu, gelu_pytorch_tanh, relu, relu2 and xielu are",
      name);
}

}  // namespace headrace
