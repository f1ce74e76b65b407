#include "bench/synth_parts.h"

#include <algorithm>

namespace headrace {
namespace {

// ---- sizes ----

int64_t hidden(const SynthShape& shape, int64_t) { return shape.hidden_size; }
int64_t hidden3(const SynthShape& shape, int64_t) { return 3 * shape.hidden_size; }
int64_t one(const SynthShape&, int64_t) { return 1; }
int64_t heads(const SynthShape& shape, int64_t) { return shape.num_heads; }

bool is_period(const SynthShape& shape, int64_t layer) {
  return (layer + 1) % shape.mixer_period == 0;
}
bool is_other(const SynthShape& shape, int64_t layer) { return !is_period(shape, layer); }

int64_t head_dim(const SynthShape& shape, int64_t) { return shape.head_dim; }
int64_t q_rows(const SynthShape& shape, int64_t) { return shape.num_heads * shape.head_dim; }
int64_t gated_q_rows(const SynthShape& shape, int64_t) {
  return 2 * shape.num_heads * shape.head_dim;
}
int64_t kv_rows(const SynthShape& shape, int64_t) { return shape.num_kv_heads * shape.head_dim; }
int64_t ffn(const SynthShape& shape, int64_t) { return shape.intermediate_size; }

bool is_dense(const SynthShape& shape, int64_t layer) { return layer < shape.num_dense_layers; }
bool is_sparse(const SynthShape& shape, int64_t layer) { return !is_dense(shape, layer); }
int64_t experts(const SynthShape& shape, int64_t) { return shape.num_experts; }
int64_t expert_width(const SynthShape& shape, int64_t) { return shape.expert_width; }
int64_t shared_width(const SynthShape& shape, int64_t) {
  return shape.num_shared_experts * shape.expert_width;
}

int64_t latent(const SynthShape& shape, int64_t) { return shape.kv_lora_rank; }
int64_t latent_key(const SynthShape& shape, int64_t) { return shape.kv_lora_rank + shape.rope_dim; }
int64_t latent_q_rows(const SynthShape& shape, int64_t) {
  return shape.num_heads * (shape.nope_dim + shape.rope_dim);
}
int64_t nope(const SynthShape& shape, int64_t) { return shape.nope_dim; }
int64_t value_dim(const SynthShape& shape, int64_t) { return shape.value_dim; }
int64_t latent_values(const SynthShape& shape, int64_t) {
  return shape.num_heads * shape.value_dim;
}

int64_t value_heads(const SynthShape& shape, int64_t) { return shape.linear_value_heads; }
int64_t linear_head_dim(const SynthShape& shape, int64_t) { return shape.linear_head_dim; }
int64_t value_rows(const SynthShape& shape, int64_t) {
  return shape.linear_value_heads * shape.linear_head_dim;
}
int64_t delta_rows(const SynthShape& shape, int64_t) {
  return (2 * shape.linear_key_heads + shape.linear_value_heads) * shape.linear_head_dim;
}
int64_t kernel(const SynthShape& shape, int64_t) { return shape.conv_kernel; }

// Short convolutions with six layers of attention among sixteen.
bool is_lfm2_attention(const SynthShape&, int64_t layer) {
  constexpr int64_t kLayers[] = {2, 5, 8, 10, 12, 14};
  return std::ranges::find(kLayers, layer) != std::end(kLayers);
}
bool is_lfm2_convolution(const SynthShape& shape, int64_t layer) {
  return !is_lfm2_attention(shape, layer);
}

// Gemma 4: full layers have wide heads, the last layers read the keys of earlier ones and have
// MLPs of twice the width.
int64_t shared_layers(const SynthShape& shape) {
  return shape.num_layers * shape.shared_kv_layers / 1024;
}
bool owns_keys(const SynthShape& shape, int64_t layer) {
  return layer < shape.num_layers - shared_layers(shape);
}
// With few layers the period is shorter: a full layer that reads keys needs one that has some.
bool is_full(const SynthShape& shape, int64_t layer) {
  const int64_t period = std::min(shape.mixer_period, shape.num_layers - shared_layers(shape));
  return (layer + 1) % period == 0 || layer == shape.num_layers - 1;
}
int64_t own_head_dim(const SynthShape& shape, int64_t layer) {
  return is_full(shape, layer) ? shape.full_head_dim : shape.head_dim;
}
int64_t own_q_rows(const SynthShape& shape, int64_t layer) {
  return shape.num_heads * own_head_dim(shape, layer);
}
int64_t own_kv_rows(const SynthShape& shape, int64_t layer) {
  return shape.num_kv_heads * own_head_dim(shape, layer);
}
int64_t own_ffn(const SynthShape& shape, int64_t layer) {
  return shape.intermediate_size * (owns_keys(shape, layer) ? 1 : 2);
}
int64_t per_layer(const SynthShape& shape, int64_t) { return shape.per_layer_width; }
int64_t per_layer_all(const SynthShape& shape, int64_t) {
  return shape.per_layer_width * shape.num_layers;
}
int64_t vocabulary(const SynthShape& shape, int64_t) { return shape.vocab_size; }
int64_t half_full_head(const SynthShape& shape, int64_t) { return shape.full_head_dim / 2; }

// A size as the value of a key.
template <SynthSize size>
double value_of(const SynthShape& shape, int64_t layer) {
  return static_cast<double>(size(shape, layer));
}
template <int64_t SynthShape::* field>
double field_of(const SynthShape& shape, int64_t) {
  return static_cast<double>(shape.*field);
}
template <auto number>
double constant(const SynthShape&, int64_t) {
  return static_cast<double>(number);
}

// ---- parts ----
// clang-format off

constexpr SynthTensorRow kAttentionNorm[] = {{"attn_norm.weight", hidden}};
constexpr SynthTensorRow kMlpNorm[] = {{"ffn_norm.weight", hidden}};
constexpr SynthTensorRow kPostAttentionNorm[] = {{"post_attention_norm.weight", hidden}};

constexpr SynthTensorRow kAttention[] = {
    {"attn_q.weight", q_rows, hidden},
    {"attn_k.weight", kv_rows, hidden},
    {"attn_v.weight", kv_rows, hidden, SynthUse::kBetter},
    {"attn_output.weight", hidden, q_rows},
};
constexpr SynthTensorRow kBiasedQkv[] = {
    {"attn_q.weight", q_rows, hidden},
    {"attn_q.bias", q_rows, nullptr, SynthUse::kExact, SynthFill::kSmall},
    {"attn_k.weight", kv_rows, hidden},
    {"attn_k.bias", kv_rows, nullptr, SynthUse::kExact, SynthFill::kSmall},
    {"attn_v.weight", kv_rows, hidden, SynthUse::kBetter},
    {"attn_v.bias", kv_rows, nullptr, SynthUse::kExact, SynthFill::kSmall},
    {"attn_output.weight", hidden, q_rows},
};
constexpr SynthTensorRow kSinks[] = {
    {"attn_output.bias", hidden, nullptr, SynthUse::kExact, SynthFill::kSmall},
    {"attn_sinks.weight", heads, nullptr, SynthUse::kExact, SynthFill::kSmall},
};
constexpr SynthTensorRow kHeadNorms[] = {{"attn_q_norm.weight", head_dim}, {"attn_k_norm.weight", head_dim}};
constexpr SynthTensorRow kWholeNorms[] = {{"attn_q_norm.weight", q_rows}, {"attn_k_norm.weight", kv_rows}};

constexpr SynthTensorRow kMlp[] = {
    {"ffn_gate.weight", ffn, hidden},
    {"ffn_up.weight", ffn, hidden},
    {"ffn_down.weight", hidden, ffn, SynthUse::kBetter},
};
constexpr SynthTensorRow kExperts[] = {
    {"ffn_gate_inp.weight", experts, hidden, SynthUse::kExact},
    {"ffn_gate_exps.weight", expert_width, hidden, SynthUse::kExpert, SynthFill::kRandom, experts},
    {"ffn_up_exps.weight", expert_width, hidden, SynthUse::kExpert, SynthFill::kRandom, experts},
    {"ffn_down_exps.weight", hidden, expert_width, SynthUse::kExpertBetter, SynthFill::kRandom, experts},
};
constexpr SynthTensorRow kExpertBiases[] = {
    {"ffn_gate_inp.bias", experts, nullptr, SynthUse::kExact, SynthFill::kSmall},
    {"ffn_gate_exps.bias", expert_width, nullptr, SynthUse::kExact, SynthFill::kSmall, experts},
    {"ffn_up_exps.bias", expert_width, nullptr, SynthUse::kExact, SynthFill::kSmall, experts},
    {"ffn_down_exps.bias", hidden, nullptr, SynthUse::kExact, SynthFill::kSmall, experts},
};
constexpr SynthTensorRow kSharedExpert[] = {
    {"ffn_gate_shexp.weight", shared_width, hidden},
    {"ffn_up_shexp.weight", shared_width, hidden},
    {"ffn_down_shexp.weight", hidden, shared_width, SynthUse::kBetter},
};

constexpr SynthTensorRow kLatent[] = {
    {"attn_q.weight", latent_q_rows, hidden},
    {"attn_kv_a_mqa.weight", latent_key, hidden},
    {"attn_kv_a_norm.weight", latent},
    {"attn_k_b.weight", latent, nope, SynthUse::kMain, SynthFill::kRandom, heads},
    {"attn_v_b.weight", value_dim, latent, SynthUse::kMain, SynthFill::kRandom, heads},
    {"attn_output.weight", hidden, latent_values},
};

constexpr SynthTensorRow kShortConvolution[] = {
    {"shortconv.conv.weight", hidden, kernel, SynthUse::kExact},
    {"shortconv.in_proj.weight", hidden3, hidden},
    {"shortconv.out_proj.weight", hidden, hidden},
};

constexpr SynthTensorRow kGatedAttention[] = {
    {"attn_q.weight", gated_q_rows, hidden},
    {"attn_k.weight", kv_rows, hidden},
    {"attn_v.weight", kv_rows, hidden, SynthUse::kBetter},
    {"attn_q_norm.weight", head_dim},
    {"attn_k_norm.weight", head_dim},
    {"attn_output.weight", hidden, q_rows},
};
constexpr SynthTensorRow kDelta[] = {
    {"attn_qkv.weight", delta_rows, hidden},
    {"attn_gate.weight", value_rows, hidden},
    {"ssm_conv1d.weight", delta_rows, kernel, SynthUse::kExact},
    {"ssm_dt.bias", value_heads, nullptr, SynthUse::kExact, SynthFill::kSmall},
    {"ssm_a", value_heads, nullptr, SynthUse::kExact, SynthFill::kNegative},
    {"ssm_beta.weight", value_heads, hidden},
    {"ssm_alpha.weight", value_heads, hidden},
    {"ssm_norm.weight", linear_head_dim},
    {"ssm_out.weight", hidden, value_rows},
};

constexpr SynthTensorRow kGemmaQ[] = {
    {"attn_q.weight", own_q_rows, hidden},
    {"attn_q_norm.weight", own_head_dim},
    {"attn_output.weight", hidden, own_q_rows},
    {"post_attention_norm.weight", hidden},
};
constexpr SynthTensorRow kGemmaKv[] = {
    {"attn_k.weight", own_kv_rows, hidden},
    {"attn_v.weight", own_kv_rows, hidden, SynthUse::kBetter},
    {"attn_k_norm.weight", own_head_dim},
};
constexpr SynthTensorRow kGemmaMlp[] = {
    {"ffn_gate.weight", own_ffn, hidden},
    {"ffn_up.weight", own_ffn, hidden},
    {"ffn_down.weight", hidden, own_ffn, SynthUse::kBetter},
    {"post_ffw_norm.weight", hidden},
    {"layer_output_scale.weight", one},
    {"inp_gate.weight", per_layer, hidden},
    {"proj.weight", hidden, per_layer},
    {"post_norm.weight", hidden},
};
constexpr SynthTensorRow kGemmaEnds[] = {
    {"per_layer_token_embd.weight", vocabulary, per_layer_all},
    {"per_layer_model_proj.weight", per_layer_all, hidden},
    {"per_layer_proj_norm.weight", per_layer},
    {"rope_freqs.weight", half_full_head, nullptr, SynthUse::kExact, SynthFill::kRopeFreqs},
};

// ---- architectures ----

constexpr SynthPart kLlamaParts[] = {{kAttentionNorm}, {kAttention}, {kMlpNorm}, {kMlp}};
constexpr SynthPart kQwen2Parts[] = {{kAttentionNorm}, {kBiasedQkv}, {kMlpNorm}, {kMlp}};
constexpr SynthPart kOlmoeParts[] = {{kAttentionNorm}, {kAttention}, {kWholeNorms}, {kMlpNorm}, {kExperts}};
constexpr SynthPart kQwen3MoeParts[] = {{kAttentionNorm}, {kAttention}, {kHeadNorms}, {kMlpNorm}, {kExperts}};
constexpr SynthPart kGptOssParts[] = {{kAttentionNorm}, {kBiasedQkv}, {kSinks}, {kPostAttentionNorm}, {kExperts},
                                      {kExpertBiases}};
constexpr SynthPart kDeepseekParts[] = {{kAttentionNorm}, {kLatent}, {kMlpNorm}, {kMlp, is_dense},
                                        {kExperts, is_sparse}, {kSharedExpert, is_sparse}};
constexpr SynthPart kLfm2Parts[] = {{kAttentionNorm}, {kShortConvolution, is_lfm2_convolution},
                                    {kAttention, is_lfm2_attention}, {kHeadNorms, is_lfm2_attention}, {kMlpNorm}, {kMlp}};
constexpr SynthPart kQwen35Parts[] = {{kAttentionNorm}, {kGatedAttention, is_period}, {kDelta, is_other},
                                      {kPostAttentionNorm}, {kMlp}};
constexpr SynthPart kGemma4Parts[] = {{kAttentionNorm}, {kGemmaQ}, {kGemmaKv, owns_keys}, {kMlpNorm}, {kGemmaMlp}};

using Kind = SynthKeyKind;

constexpr SynthKeyRow kExpertCounts[] = {
    {"expert_count", Kind::kCount, field_of<&SynthShape::num_experts>},
    {"expert_used_count", Kind::kCount, field_of<&SynthShape::num_experts_used>},
    {"expert_feed_forward_length", Kind::kCount, field_of<&SynthShape::expert_width>},
};
constexpr SynthKeyRow kGptOssKeys[] = {
    kExpertCounts[0], kExpertCounts[1], kExpertCounts[2],
    {"attention.sliding_window", Kind::kCount, field_of<&SynthShape::window>},
    {"rope.scaling.type", Kind::kText, nullptr, "yarn"},
    {"rope.scaling.factor", Kind::kNumber, constant<32>},
    {"rope.scaling.original_context_length", Kind::kCount, constant<4096>},
};
constexpr SynthKeyRow kDeepseekKeys[] = {
    kExpertCounts[0], kExpertCounts[1], kExpertCounts[2],
    {"expert_shared_count", Kind::kCount, field_of<&SynthShape::num_shared_experts>},
    {"expert_weights_scale", Kind::kNumber, constant<1>},
    {"leading_dense_block_count", Kind::kCount, field_of<&SynthShape::num_dense_layers>},
    {"attention.head_count_kv", Kind::kCount, constant<1>},
    {"attention.kv_lora_rank", Kind::kCount, value_of<latent>},
    {"attention.key_length", Kind::kCount, value_of<latent_key>},
    {"attention.value_length", Kind::kCount, value_of<latent>},
    {"attention.key_length_mla", Kind::kCount,
     [](const SynthShape& shape, int64_t) { return static_cast<double>(shape.nope_dim + shape.rope_dim); }},
    {"attention.value_length_mla", Kind::kCount, value_of<value_dim>},
    {"rope.dimension_count", Kind::kCount, field_of<&SynthShape::rope_dim>},
    {"rope.scaling.type", Kind::kText, nullptr, "yarn"},
    {"rope.scaling.factor", Kind::kNumber, constant<40>},
    {"rope.scaling.original_context_length", Kind::kCount, constant<4096>},
    {"rope.scaling.yarn_log_multiplier", Kind::kNumber, constant<0.0707>},
};
constexpr SynthKeyRow kLfm2Keys[] = {
    {"shortconv.l_cache", Kind::kCount, value_of<kernel>},
    {"attention.head_count_kv", Kind::kCounts,
     [](const SynthShape& shape, int64_t layer) {
       return is_lfm2_attention(shape, layer) ? static_cast<double>(shape.num_kv_heads) : 0.0;
     }},
};
constexpr SynthKeyRow kQwen35Keys[] = {
    {"ssm.conv_kernel", Kind::kCount, value_of<kernel>},
    {"ssm.state_size", Kind::kCount, value_of<linear_head_dim>},
    {"ssm.group_count", Kind::kCount, field_of<&SynthShape::linear_key_heads>},
    {"ssm.time_step_rank", Kind::kCount, value_of<value_heads>},
    {"ssm.inner_size", Kind::kCount, value_of<value_rows>},
    {"full_attention_interval", Kind::kCount, field_of<&SynthShape::mixer_period>},
    {"rope.dimension_count", Kind::kCount, field_of<&SynthShape::rope_dim>},
    {"rope.dimension_sections", Kind::kCounts,
     [](const SynthShape&, int64_t i) { return i < 2 ? 11.0 : i == 2 ? 10.0 : 0.0; }, "", 4},
};
constexpr SynthKeyRow kGemma4Keys[] = {
    {"attention.sliding_window", Kind::kCount, field_of<&SynthShape::window>},
    {"attention.sliding_window_pattern", Kind::kFlags,
     [](const SynthShape& shape, int64_t layer) { return is_full(shape, layer) ? 0.0 : 1.0; }},
    {"attention.shared_kv_layers", Kind::kCount,
     [](const SynthShape& shape, int64_t) { return static_cast<double>(shared_layers(shape)); }},
    {"embedding_length_per_layer_input", Kind::kCount, value_of<per_layer>},
    {"attention.key_length", Kind::kCount, field_of<&SynthShape::full_head_dim>},
    {"attention.value_length", Kind::kCount, field_of<&SynthShape::full_head_dim>},
    {"attention.key_length_swa", Kind::kCount, value_of<head_dim>},
    {"attention.value_length_swa", Kind::kCount, value_of<head_dim>},
    {"feed_forward_length", Kind::kCounts, value_of<own_ffn>},
    {"rope.dimension_count", Kind::kCount, field_of<&SynthShape::full_head_dim>},
    {"rope.dimension_count_swa", Kind::kCount, value_of<head_dim>},
    {"rope.freq_base_swa", Kind::kNumber, constant<10000>},
    {"final_logit_softcapping", Kind::kNumber, constant<30>},
};

constexpr SynthKeyRow kCommonKeys[] = {
    {"block_count", Kind::kCount, field_of<&SynthShape::num_layers>},
    {"context_length", Kind::kCount, field_of<&SynthShape::context>},
    {"embedding_length", Kind::kCount, value_of<hidden>},
    {"feed_forward_length", Kind::kCount, value_of<ffn>},
    {"attention.head_count", Kind::kCount, value_of<heads>},
    {"attention.head_count_kv", Kind::kCount, field_of<&SynthShape::num_kv_heads>},
    {"attention.key_length", Kind::kCount, value_of<head_dim>},
    {"attention.value_length", Kind::kCount, value_of<head_dim>},
    {"rope.dimension_count", Kind::kCount, value_of<head_dim>},
    {"vocab_size", Kind::kCount, value_of<vocabulary>},
    {"rope.freq_base", Kind::kNumber, [](const SynthShape& shape, int64_t) { return shape.rope_theta; }},
    {"attention.layer_norm_rms_epsilon", Kind::kNumber, constant<1e-5>},
};

constexpr SynthArchitecture kArchitectures[] = {
    {.name = "llama", .parts = kLlamaParts},
    {.name = "qwen2", .tokenizer_pre = "qwen2", .parts = kQwen2Parts},
    {.name = "olmoe", .parts = kOlmoeParts, .keys = kExpertCounts},
    {.name = "qwen3moe", .tokenizer_pre = "qwen2", .parts = kQwen3MoeParts, .keys = kExpertCounts},
    {.name = "gpt-oss", .parts = kGptOssParts, .keys = kGptOssKeys},
    {.name = "deepseek2", .parts = kDeepseekParts, .keys = kDeepseekKeys},
    {.name = "lfm2", .final_norm = "token_embd_norm.weight", .parts = kLfm2Parts, .keys = kLfm2Keys},
    {.name = "qwen35", .tokenizer_pre = "qwen2", .parts = kQwen35Parts, .keys = kQwen35Keys},
    {.name = "gemma4", .parts = kGemma4Parts, .ends = kGemmaEnds, .keys = kGemma4Keys},
};
// clang-format on

}  // namespace

const SynthArchitecture* find_synth_architecture(std::string_view name) {
  for (const SynthArchitecture& row : kArchitectures) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::span<const SynthKeyRow> common_synth_keys() { return kCommonKeys; }

}  // namespace headrace
