// GGUF networks of the architectures that random models are written of: experts, latent attention,
// recurrent layers, keys and values of earlier layers.
#include <algorithm>

#include "bench/synth_parts.h"
#include "model/config/families.h"
#include "model_seeds.h"

namespace headrace::fuzz {
namespace {

// A few numbers of each of its kinds of layers.
SynthShape narrowed(SynthShape shape) {
  shape.hidden_size = 32;
  shape.num_layers = std::min<int64_t>(shape.num_layers, 6);
  shape.num_heads = 4;
  shape.num_kv_heads = 2;
  shape.head_dim = 8;
  shape.intermediate_size = 32;
  shape.vocab_size = 40;
  shape.context = 64;
  const auto at_most = [](int64_t* size, int64_t largest) { *size = std::min(*size, largest); };
  at_most(&shape.window, 4);
  at_most(&shape.num_experts, 4);
  at_most(&shape.num_experts_used, 2);
  at_most(&shape.expert_width, 32);
  for (int64_t SynthShape::* field : {&SynthShape::kv_lora_rank, &SynthShape::nope_dim,
                                      &SynthShape::value_dim, &SynthShape::linear_head_dim}) {
    at_most(&(shape.*field), 8);
  }
  at_most(&shape.rope_dim, 4);
  at_most(&shape.full_head_dim, 16);
  at_most(&shape.per_layer_width, 4);
  at_most(&shape.linear_key_heads, 1);
  at_most(&shape.linear_value_heads, 2);
  return shape;
}

GgufKey::Value value_of(const SynthShape& shape, const SynthKeyRow& row) {
  switch (row.kind) {
    case SynthKeyKind::kCount:
      return static_cast<uint32_t>(row.value(shape, 0));
    case SynthKeyKind::kNumber:
      return static_cast<float>(row.value(shape, 0));
    case SynthKeyKind::kFlag:
      return row.value(shape, 0) != 0;
    case SynthKeyKind::kText:
      return std::string(row.text);
    default:
      break;
  }
  std::vector<int32_t> values;
  const int64_t size = row.num_entries > 0 ? row.num_entries : shape.num_layers;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<int32_t>(row.value(shape, i)));
  return values;
}

GgufModel model_of(const SynthShape& shape, const SynthFormat& format) {
  GgufModel model;
  model.name = std::string(shape.name);
  model.architecture = std::string(shape.architecture);
  for (const SynthTensor& tensor : synth_tensors(shape, format)) {
    model.tensors.tensor(tensor.name, {tensor.sizes.begin(), tensor.sizes.end()}, tensor.dtype);
  }
  model.keys = {{"general.architecture", model.architecture}, {"general.name", "tiny"}};
  const auto own = find_synth_architecture(shape.architecture)->keys;
  const auto add = [&](const SynthKeyRow& row) {
    model.keys.push_back({model.architecture + "." + std::string(row.name), value_of(shape, row)});
  };
  for (const SynthKeyRow& row : common_synth_keys()) {
    const auto replaces = [&](const SynthKeyRow& other) { return other.name == row.name; };
    if (row.name != "vocab_size" && std::ranges::none_of(own, replaces)) add(row);
  }
  for (const SynthKeyRow& row : own) add(row);
  add_merged_vocabulary(&model.keys);
  model.keys.push_back({"tokenizer.ggml.bos_token_id", 1u});
  model.keys.push_back({"tokenizer.ggml.eos_token_id", 2u});
  return model;
}

}  // namespace

std::vector<GgufModel> gguf_models_of_parts() {
  std::vector<GgufModel> models;
  const auto formats = synth_formats();
  for (const SynthShape& shape : synth_shapes()) {
    const bool plain = shape.architecture == "llama" || shape.architecture == "qwen2";
    if (plain || find_family_by_gguf(shape.architecture, shape.window > 0) == nullptr) continue;
    // Formats of blocks that fit, in turn.
    models.push_back(model_of(narrowed(shape), formats[models.size() * 5 % formats.size()]));
  }
  return models;
}

}  // namespace headrace::fuzz
