// Tiny networks as safetensors with config.json, and mutations of that text.
#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "model/config/families.h"
#include "model_seeds.h"

namespace headrace::fuzz {
namespace {

namespace json = boost::json;

constexpr Sizes kSizes = {
    .hidden = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 64, .vocab = 40, .layers = 2};
constexpr uint64_t kGroup = 16;  // inputs per scale

using Tensors = std::vector<SeedTensor>;

// ---- layouts of a linear weight [outputs, inputs] ----

void add_plain(Tensors* tensors, const std::string& base, uint64_t outputs, uint64_t inputs) {
  constexpr std::array<std::string_view, 3> kDTypes = {"BF16", "F32", "F16"};
  tensors->push_back(
      {base + ".weight", kDTypes[tensors->size() % kDTypes.size()], {outputs, inputs}});
}

void add_gptq(Tensors* tensors, const std::string& base, uint64_t outputs, uint64_t inputs) {
  std::vector<int64_t> groups;
  for (uint64_t k = 0; k < inputs; ++k) {
    groups.push_back(static_cast<int64_t>(k * 7 % inputs / kGroup));
  }
  tensors->push_back({base + ".qweight", "I32", {inputs / 8, outputs}});
  tensors->push_back({base + ".qzeros", "I32", {inputs / kGroup, outputs / 8}});
  tensors->push_back({base + ".scales", "F16", {inputs / kGroup, outputs}});
  tensors->push_back({base + ".g_idx", "I32", {inputs}, std::move(groups)});
}

void add_awq(Tensors* tensors, const std::string& base, uint64_t outputs, uint64_t inputs) {
  tensors->push_back({base + ".qweight", "I32", {inputs, outputs / 8}});
  tensors->push_back({base + ".qzeros", "I32", {inputs / kGroup, outputs / 8}});
  tensors->push_back({base + ".scales", "F16", {inputs / kGroup, outputs}});
}

void add_packed(Tensors* tensors, const std::string& base, uint64_t outputs, uint64_t inputs) {
  tensors->push_back({base + ".weight_packed", "I32", {outputs, inputs / 8}});
  tensors->push_back({base + ".weight_scale", "BF16", {outputs, inputs / kGroup}});
  tensors->push_back({base + ".weight_shape",
                      "I64",
                      {2},
                      {static_cast<int64_t>(outputs), static_cast<int64_t>(inputs)}});
}

void add_float8(Tensors* tensors, const std::string& base, uint64_t outputs, uint64_t inputs) {
  tensors->push_back({base + ".weight", "F8_E4M3", {outputs, inputs}});
  tensors->push_back({base + ".weight_scale_inv",
                      "F32",
                      {(outputs + kGroup - 1) / kGroup, (inputs + kGroup - 1) / kGroup}});
}

using AddLinear = void (*)(Tensors* tensors, const std::string& base, uint64_t outputs,
                           uint64_t inputs);

// ---- networks ----

struct Form {
  std::string_view name;
  AddLinear linear = add_plain;
  std::string_view config;  // members beside the sizes
  bool fused = false;
  bool qk_norm = false;
  bool four_norms = false;
  bool qkv_bias = false;
  bool tied = false;
};

constexpr std::array<Form, 9> kForms = {{
    {.name = "llama",
     .config = R"("model_type":"llama","rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3",
         "factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
         "original_max_position_embeddings":16},"attention_bias":false,"mlp_bias":false,
         "bos_token_id":1,"eos_token_id":[2,3])"},
    {.name = "mistral in a wrapper",
     .config = R"("model_type":"mistral","sliding_window":4,"rope_theta":10000.0,
         "text_config":{"model_type":"mistral","num_hidden_layers":2,"rope_parameters":{
         "rope_type":"yarn","factor":4.0,"beta_fast":32,"beta_slow":1,
         "original_max_position_embeddings":16}})"},
    {.name = "gemma3",
     .config = R"("model_type":"gemma3_text","sliding_window":4,"query_pre_attn_scalar":8,
         "layer_types":["sliding_attention","full_attention"],"rope_local_base_freq":10000.0,
         "rope_scaling":{"rope_type":"linear","factor":8.0},"final_logit_softcapping":30.0)",
     .qk_norm = true,
     .four_norms = true,
     .tied = true},
    {.name = "phi3",
     .config = R"("model_type":"phi3","original_max_position_embeddings":6,"rope_scaling":{
         "type":"longrope","short_factor":[1.0,1.5,2.0,2.5],"long_factor":[1.0,3.0,5.0,7.0]})",
     .fused = true},
    {.name = "qwen2",
     .config = R"("model_type":"qwen2","rope_scaling":{"type":"dynamic","factor":2.0},
         "use_sliding_window":true,"sliding_window":5,"max_window_layers":1)",
     .qkv_bias = true,
     .tied = true},
    {.name = "gptq",
     .linear = add_gptq,
     .config = R"("model_type":"llama","quantization_config":{"quant_method":"gptq","bits":4,
         "group_size":16,"desc_act":true,"checkpoint_format":"gptq","sym":false})"},
    {.name = "packed",
     .linear = add_packed,
     .config = R"("model_type":"llama","quantization_config":{
         "quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":{
         "weights":{"num_bits":4,"group_size":16,"strategy":"group","symmetric":true,
         "type":"int"},"targets":["Linear"]}}})"},
    {.name = "fp8",
     .linear = add_float8,
     .config = R"("model_type":"llama","quantization_config":{"quant_method":"fp8",
         "weight_block_size":[16,16]})"},
    {.name = "awq",
     .linear = add_awq,
     .config = R"("model_type":"llama","quantization_config":{"quant_method":"awq","bits":4,
         "group_size":16,"version":"gemm","zero_point":true})"},
}};

void add_vector(Tensors* tensors, const std::string& name, uint64_t size) {
  tensors->push_back({name, "F32", {size}});
}

void add_qkv(Tensors* tensors, const std::string& prefix, const Form& form, const Sizes& sizes) {
  const uint64_t q_rows = sizes.q_rows();
  const uint64_t kv_rows = sizes.kv_rows();
  if (form.fused) {
    form.linear(tensors, prefix + "self_attn.qkv_proj", q_rows + 2 * kv_rows, sizes.hidden);
    return;
  }
  const std::array<std::pair<std::string_view, uint64_t>, 3> parts = {
      {{"q_proj", q_rows}, {"k_proj", kv_rows}, {"v_proj", kv_rows}}};
  for (const auto& [name, rows] : parts) {
    const std::string base = fmt::format("{}self_attn.{}", prefix, name);
    form.linear(tensors, base, rows, sizes.hidden);
    if (form.qkv_bias) add_vector(tensors, base + ".bias", rows);
  }
}

void add_layer(Tensors* tensors, const std::string& prefix, const Form& form, const Sizes& sizes) {
  add_qkv(tensors, prefix, form, sizes);
  form.linear(tensors, prefix + "self_attn.o_proj", sizes.hidden, sizes.q_rows());
  if (form.fused) {
    form.linear(tensors, prefix + "mlp.gate_up_proj", 2 * sizes.ffn, sizes.hidden);
  } else {
    form.linear(tensors, prefix + "mlp.gate_proj", sizes.ffn, sizes.hidden);
    form.linear(tensors, prefix + "mlp.up_proj", sizes.ffn, sizes.hidden);
  }
  form.linear(tensors, prefix + "mlp.down_proj", sizes.hidden, sizes.ffn);
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    add_vector(tensors, prefix + norm + ".weight", sizes.hidden);
  }
  if (form.four_norms) {
    for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      add_vector(tensors, prefix + norm + ".weight", sizes.hidden);
    }
  }
  if (form.qk_norm) {
    for (const char* norm : {"self_attn.q_norm", "self_attn.k_norm"}) {
      add_vector(tensors, prefix + norm + ".weight", sizes.head_dim);
    }
  }
}

SafetensorsModel safetensors_model(const Form& form, const Sizes& sizes) {
  Tensors tensors;
  add_plain(&tensors, "model.embed_tokens", sizes.vocab, sizes.hidden);
  add_vector(&tensors, "model.norm.weight", sizes.hidden);
  for (uint32_t i = 0; i < sizes.layers; ++i) {
    add_layer(&tensors, fmt::format("model.layers.{}.", i), form, sizes);
  }
  if (!form.tied) add_plain(&tensors, "lm_head", sizes.vocab, sizes.hidden);
  SafetensorsModel model;
  model.seeds.push_back(safetensors_seed(std::string(form.name), tensors));
  model.config = fmt::format(
      R"({{"hidden_size":{},"intermediate_size":{},"num_hidden_layers":{},
      "num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},
      "max_position_embeddings":64,"rms_norm_eps":1e-05,"tie_word_embeddings":{},
      "torch_dtype":"bfloat16",{}}})",
      sizes.hidden, sizes.ffn, sizes.layers, sizes.heads, sizes.kv_heads, sizes.head_dim,
      sizes.vocab, form.tied, form.config);
  return model;
}

// ---- mutations of the text ----

constexpr auto kOddValues = std::to_array<std::string_view>(
    {"0",
     "1",
     "2",
     "3",
     "4",
     "5",
     "6",
     "7",
     "9",
     "15",
     "16",
     "31",
     "33",
     "512",
     "513",
     "1024",
     "4096",
     "4097",
     "10000",
     "1000000",
     "2147483647",
     "2147483648",
     "1099511627776",
     "4611686018427387904",
     "9223372036854775807",
     "9223372036854775808",
     "18446744073709551615",
     "99999999999999999999999",
     "-1",
     "-2147483648",
     "-9223372036854775808",
     "0.0",
     "0.5",
     "-0.5",
     "1.0000001",
     "32.0",
     "32.5",
     "1e-30",
     "1e-310",
     "1e30",
     "1e300",
     "-1e300",
     "null",
     "true",
     "false",
     "\"\"",
     "\"16\"",
     "\"default\"",
     "\"linear\"",
     "\"dynamic\"",
     "\"yarn\"",
     "\"longrope\"",
     "\"llama3\"",
     "\"gemma2\"",
     "\"granite\"",
     "\"cohere2\"",
     "\"gelu_pytorch_tanh\"",
     "\"full_attention\"",
     "[\"sliding_attention\",\"sliding_attention\"]",
     "[\"full_attention\",\"full_attention\"]",
     "[]",
     "[1]",
     "[0,1e308]",
     "[1,0,0,1]",
     "{}",
     "{\"rope_type\":\"yarn\",\"factor\":2}",
     "{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25}",
     "\"linear_attention\"",
     "\"mamba\"",
     "\"conv\"",
     "\"sparse\"",
     "\"group_limited_greedy\"",
     "\"noaux_tc\"",
     "\"sigmoid\"",
     "\"auto\"",
     "[\"mamba\",\"attention\",\"mamba\",\"mamba\"]",
     "[\"conv\",\"conv\",\"conv\",\"full_attention\"]",
     "[\"linear_attention\",\"linear_attention\",\"linear_attention\",\"full_attention\"]",
     "[\"dense\",\"sparse\",\"dense\"]",
     "[0,1]",
     "[0,2147483647]",
     "{\"__float__\":\"Infinity\"}",
     "{\"5\":{\"head_dim\":8}}",
     "{\"head_dim\":8,\"num_heads\":2,\"short_conv_kernel_size\":3,\"full_attn_layers\":[3],\"kda_"
     "layers\":[1,2,4]}"});

constexpr auto kMoreKeys = std::to_array<std::string_view>({"partial_rotary_factor",
                                                            "original_max_position_embeddings",
                                                            "rope_theta",
                                                            "rope_scaling",
                                                            "rope_parameters",
                                                            "rope_type",
                                                            "factor",
                                                            "attention_factor",
                                                            "mscale",
                                                            "mscale_all_dim",
                                                            "beta_fast",
                                                            "beta_slow",
                                                            "truncate",
                                                            "short_factor",
                                                            "long_factor",
                                                            "full_attention",
                                                            "sliding_attention",
                                                            "llama_4_scaling_beta",
                                                            "sliding_window",
                                                            "use_sliding_window",
                                                            "max_window_layers",
                                                            "layer_types",
                                                            "sliding_window_pattern",
                                                            "no_rope_layers",
                                                            "no_rope_layer_interval",
                                                            "attention_bias",
                                                            "mlp_bias",
                                                            "hidden_act",
                                                            "hidden_activation",
                                                            "head_dim",
                                                            "embedding_multiplier",
                                                            "residual_multiplier",
                                                            "attention_multiplier",
                                                            "logits_scaling",
                                                            "logit_scale",
                                                            "attn_logit_softcapping",
                                                            "final_logit_softcapping",
                                                            "query_pre_attn_scalar",
                                                            "text_config",
                                                            "quantization_config",
                                                            "num_experts",
                                                            "num_local_experts",
                                                            "n_routed_experts",
                                                            "num_experts_per_tok",
                                                            "num_experts_per_token",
                                                            "top_k_experts",
                                                            "moe_intermediate_size",
                                                            "shared_expert_intermediate_size",
                                                            "shared_intermediate_size",
                                                            "n_shared_experts",
                                                            "num_shared_experts",
                                                            "n_group",
                                                            "topk_group",
                                                            "num_expert_group",
                                                            "norm_topk_prob",
                                                            "moe_renormalize",
                                                            "routed_scaling_factor",
                                                            "topk_method",
                                                            "scoring_func",
                                                            "first_k_dense_replace",
                                                            "mlp_only_layers",
                                                            "decoder_sparse_step",
                                                            "mlp_layer_types",
                                                            "clip_qkv",
                                                            "swiglu_limit",
                                                            "swiglu_alpha",
                                                            "rotary_dim",
                                                            "use_qk_norm",
                                                            "qkv_bias",
                                                            "q_lora_rank",
                                                            "kv_lora_rank",
                                                            "qk_nope_head_dim",
                                                            "qk_rope_head_dim",
                                                            "v_head_dim",
                                                            "rope_interleave",
                                                            "index_n_heads",
                                                            "index_head_dim",
                                                            "index_topk",
                                                            "linear_num_key_heads",
                                                            "linear_num_value_heads",
                                                            "linear_key_head_dim",
                                                            "linear_value_head_dim",
                                                            "linear_conv_kernel_dim",
                                                            "full_attention_interval",
                                                            "linear_attn_config",
                                                            "linear_num_heads",
                                                            "linear_head_dim",
                                                            "conv_L_cache",
                                                            "conv_bias",
                                                            "full_attn_idxs",
                                                            "block_ff_dim",
                                                            "num_heads",
                                                            "state_size",
                                                            "n_groups",
                                                            "expand",
                                                            "conv_kernel",
                                                            "use_conv_bias",
                                                            "time_step_limit",
                                                            "mamba_n_heads",
                                                            "mamba_d_head",
                                                            "mamba_d_state",
                                                            "mamba_n_groups",
                                                            "mamba_d_conv",
                                                            "mamba_expand",
                                                            "position_embedding_type",
                                                            "global_head_dim",
                                                            "num_global_key_value_heads",
                                                            "attention_k_eq_v",
                                                            "num_kv_shared_layers",
                                                            "use_double_wide_mlp",
                                                            "hidden_size_per_layer_input",
                                                            "vocab_size_per_layer_input",
                                                            "enable_moe_block",
                                                            "per_layer_config",
                                                            "intermediate_size",
                                                            "num_key_value_heads",
                                                            "num_attention_heads",
                                                            "vocab_size"});

json::value odd_value(std::mt19937_64& random) {
  const std::string_view text = kOddValues[random() % kOddValues.size()];
  const auto value = parse_json(text, "an odd value");
  CHECK(value.ok(), "{}", text);
  return *value;
}

void collect_objects(json::value* value, std::vector<json::object*>* objects) {
  if (json::array* list = value->if_array()) {
    for (json::value& element : *list) collect_objects(&element, objects);
  }
  json::object* object = value->if_object();
  if (object == nullptr) return;
  objects->push_back(object);
  for (auto& member : *object) collect_objects(&member.value(), objects);
}

// A number near the one that stands there.
void nudge(json::value* value, std::mt19937_64& random) {
  if (value->is_double()) *value = value->get_double() * (random() % 2 == 0 ? -1.0 : 1e-3);
  if (!value->is_int64()) return;
  const auto found = static_cast<uint64_t>(value->get_int64());
  const std::array<uint64_t, 5> near = {found + 1, found - 1, found * 2, found / 2, ~found + 1};
  *value = static_cast<int64_t>(near[random() % near.size()]);
}

// The same tensors read as another family's: those it lacks are named, those it has are run.
void change_family(json::value* root, std::mt19937_64& random) {
  const Family& family = families()[random() % families().size()];
  root->as_object()["model_type"] = family.model_types[0];
}

void mutate_member(json::value* root, std::mt19937_64& random) {
  std::vector<json::object*> objects;
  collect_objects(root, &objects);
  if (objects.empty()) return;
  json::object& object = *objects[random() % objects.size()];
  const uint64_t kind = random() % 8;
  if (kind >= 6 || object.empty()) {
    const std::string_view key = kMoreKeys[random() % kMoreKeys.size()];
    object[key] = odd_value(random);
    return;
  }
  const auto member = object.begin() + static_cast<ptrdiff_t>(random() % object.size());
  switch (kind) {
    case 0:
      object.erase(member);
      return;
    case 1:
      std::swap(member->value(), object.begin()[random() % object.size()].value());
      return;
    case 2:
    case 3:
      nudge(&member->value(), random);
      return;
    default:
      member->value() = odd_value(random);
  }
}

// A member of the outermost object for the second time, or bytes changed.
void damage_text(std::string* text, std::mt19937_64& random) {
  constexpr std::array<std::string_view, 7> kTexts = {"NaN", "1e999", "-", "}", "{", "\"", ","};
  const size_t at = random() % text->size();
  switch (random() % 3) {
    case 0: {
      const std::string_view key = random() % 2 == 0 ? "hidden_size" : "num_hidden_layers";
      text->insert(1, fmt::format("\"{}\":{},", key, kOddValues[random() % kOddValues.size()]));
      return;
    }
    case 1:
      text->replace(at, at % 4, kTexts[random() % kTexts.size()]);
      return;
    default:
      text->resize(at);
  }
}

}  // namespace

std::vector<SafetensorsModel> safetensors_models() {
  std::vector<SafetensorsModel> models;
  for (const Form& form : kForms) models.push_back(safetensors_model(form, kSizes));
  return models;
}

SafetensorsModel resized_safetensors_model(std::mt19937_64& random) {
  const Form& form = kForms[random() % kForms.size()];
  return safetensors_model(form, odd_sizes(random));
}

std::string mutate_config(const std::string& config, std::mt19937_64& random) {
  const auto parsed = parse_json(config, "the seed's config.json");
  CHECK(parsed.ok(), "{}", parsed.error().message);
  json::value root = *parsed;
  const uint64_t num_mutations = 1 + random() % 3;
  for (uint64_t i = 0; i < num_mutations; ++i) mutate_member(&root, random);
  if (random() % 4 == 0) change_family(&root, random);
  std::string text = json::serialize(root);
  if (random() % 8 == 0) damage_text(&text, random);
  return text;
}

}  // namespace headrace::fuzz
