#include "model/config/read_latent.h"

#include <cmath>

namespace headrace {

Result<LatentConfig> read_latent_json(const JsonObject& json, const LatentRow& row) {
  LatentConfig latent;
  // Null switches the low rank of queries off.
  if (!json.is_null("q_lora_rank")) {
    latent.q_lora_rank = TRY(json.small_integer("q_lora_rank", row.q_lora_rank, 0));
  }
  latent.kv_lora_rank = TRY(json.small_integer("kv_lora_rank", 512));
  latent.qk_nope_head_dim = TRY(json.small_integer("qk_nope_head_dim", 128));
  latent.qk_rope_head_dim = TRY(json.small_integer("qk_rope_head_dim", 64, 0));
  latent.v_head_dim = TRY(json.small_integer("v_head_dim", 128));
  if (!row.indexed) return latent;
  latent.index_n_heads = TRY(json.small_integer("index_n_heads", 64));
  latent.index_head_dim = TRY(json.small_integer("index_head_dim", 128));
  latent.index_topk = TRY(json.small_integer("index_topk", 2048));
  return latent;
}

namespace {

Result<int> size_of(const GgufKeys& keys, std::string_view key,
                    std::optional<int64_t> fallback = {}) {
  const int64_t value = TRY(keys.integer(key, fallback));
  if (value >= 0 && value <= 1'000'000) return static_cast<int>(value);
  return make_error(ErrorCode::kInvalidArgument, "GGUF key {} is {}, but must be 0 to 1000000",
                    keys.name(key), value);
}

}  // namespace

Result<LatentConfig> read_latent_gguf(const GgufKeys& keys, const LatentRow& row) {
  LatentConfig latent;
  latent.q_lora_rank = TRY(size_of(keys, "attention.q_lora_rank", 0));
  latent.kv_lora_rank = TRY(size_of(keys, "attention.kv_lora_rank"));
  latent.qk_rope_head_dim = TRY(size_of(keys, "rope.dimension_count"));
  // Widths of a head: older files keep them where newer ones have those of the cached vector.
  const bool split = keys.has("attention.key_length_mla");
  const int key_dim =
      TRY(size_of(keys, split ? "attention.key_length_mla" : "attention.key_length"));
  latent.v_head_dim =
      TRY(size_of(keys, split ? "attention.value_length_mla" : "attention.value_length"));
  latent.qk_nope_head_dim = key_dim - latent.qk_rope_head_dim;
  if (!row.indexed) return latent;
  latent.index_n_heads = TRY(size_of(keys, "attention.indexer.head_count"));
  latent.index_head_dim = TRY(size_of(keys, "attention.indexer.key_length"));
  latent.index_topk = TRY(size_of(keys, "attention.indexer.top_k"));
  return latent;
}

void set_latent(const LatentConfig& latent, LayerConfig* layer) {
  layer->mixer = MixerKind::kLatent;
  layer->latent = latent;
  layer->num_key_value_heads = 0;
  layer->head_dim = 0;
}

void set_latent_scales(ModelConfig* config) {
  for (LayerConfig& layer : config->layers) {
    if (layer.mixer != MixerKind::kLatent) continue;
    double scale = 1 / std::sqrt(static_cast<double>(layer.latent.qk_head_dim()));
    if (layer.rope_idx >= 0) {
      const RopeConfig& rope = config->ropes[static_cast<size_t>(layer.rope_idx)];
      const bool grows = rope.type != RopeType::kDefault && rope.factor > 1;
      const double mscale = grows ? 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1 : 1;
      scale *= mscale * mscale;
    }
    layer.attention_scale = static_cast<float>(scale);
  }
}

}  // namespace headrace
