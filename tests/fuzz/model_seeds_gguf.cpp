#include "model_seeds.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace headrace::fuzz {
namespace {

using testing::GgufBuilder;

// ---- GGUF ----

constexpr Sizes kSmall = {32, 4, 2, 8, 64, 40, 2};
constexpr Sizes kWide = {256, 2, 1, 8, 256, 12, 1};  // rows of whole superblocks

struct GgufForm {
  std::string_view name;
  std::string_view architecture;
  Sizes sizes = kSmall;
  std::vector<std::string_view> norms;        // of a layer
  std::vector<DType> dtypes = {DType::kF32};  // of weights with whole blocks, in turn
  bool fused = false;
  bool qk_norm = false;
  bool biases = false;
  bool own_head = false;
  std::vector<GgufKey> keys = {};              // beside those of all, without the architecture
  std::vector<std::string_view> factors = {};  // one for each rotated pair
};

class GgufTensors {
 public:
  explicit GgufTensors(const GgufForm& form) : form_(form) {
    const Sizes& sizes = form.sizes;
    linear("token_embd", sizes.vocab, sizes.hidden);
    vector("output_norm.weight", sizes.hidden);
    if (form.own_head) linear("output", sizes.vocab, sizes.hidden);
    for (uint32_t i = 0; i < sizes.layers; ++i) layer(fmt::format("blk.{}.", i));
    for (const std::string_view name : form.factors) vector(name, sizes.head_dim / 2);
  }
  GgufBuilder& builder() { return builder_; }

 private:
  void linear(const std::string& base, uint64_t outputs, uint64_t inputs) {
    const DType wanted = form_.dtypes[num_linear_++ % form_.dtypes.size()];
    const bool whole = inputs % dtype_row(wanted).block_elements == 0;
    builder_.tensor(base + ".weight", {inputs, outputs}, whole ? wanted : DType::kF16);
    if (form_.biases && base.starts_with("blk.")) vector(base + ".bias", outputs);
  }
  void vector(std::string_view name, uint64_t size) { builder_.tensor(name, {size}, DType::kF32); }
  void layer(const std::string& prefix) {
    const Sizes& sizes = form_.sizes;
    for (const std::string_view norm : form_.norms) {
      vector(fmt::format("{}{}.weight", prefix, norm), sizes.hidden);
    }
    if (form_.fused) {
      linear(prefix + "attn_qkv", sizes.q_rows() + 2 * sizes.kv_rows(), sizes.hidden);
      linear(prefix + "ffn_up", 2 * sizes.ffn, sizes.hidden);
    } else {
      linear(prefix + "attn_q", sizes.q_rows(), sizes.hidden);
      linear(prefix + "attn_k", sizes.kv_rows(), sizes.hidden);
      linear(prefix + "attn_v", sizes.kv_rows(), sizes.hidden);
      linear(prefix + "ffn_gate", sizes.ffn, sizes.hidden);
      linear(prefix + "ffn_up", sizes.ffn, sizes.hidden);
    }
    linear(prefix + "attn_output", sizes.hidden, sizes.q_rows());
    linear(prefix + "ffn_down", sizes.hidden, sizes.ffn);
    if (!form_.qk_norm) return;
    vector(prefix + "attn_q_norm.weight", sizes.head_dim);
    vector(prefix + "attn_k_norm.weight", sizes.head_dim);
  }

  const GgufForm& form_;
  GgufBuilder builder_;
  size_t num_linear_ = 0;
};

// Pieces with scores, as SentencePiece makes them.
void add_scored_vocabulary(std::vector<GgufKey>* keys) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁ab"};
  std::vector<int32_t> types = {2, 3, 3, 6, 1, 1, 1, 1, 1};
  std::vector<float> scores = {0, 0, 0, 0, -1, -2, -3, -4, -5};
  keys->push_back({"tokenizer.ggml.model", "llama"});
  keys->push_back({"tokenizer.ggml.tokens", std::move(tokens)});
  keys->push_back({"tokenizer.ggml.token_type", std::move(types)});
  keys->push_back({"tokenizer.ggml.scores", std::move(scores)});
  keys->push_back({"tokenizer.ggml.add_space_prefix", true});
}

std::vector<GgufKey> keys_of(const GgufForm& form) {
  const std::string prefix = std::string(form.architecture) + ".";
  const Sizes& sizes = form.sizes;
  std::vector<GgufKey> keys = {
      {"general.architecture", std::string(form.architecture)},
      {"general.name", "tiny"},
      {prefix + "embedding_length", sizes.hidden},
      {prefix + "block_count", sizes.layers},
      {prefix + "feed_forward_length", sizes.ffn},
      {prefix + "context_length", 64u},
      {prefix + "attention.head_count", sizes.heads},
      {prefix + "attention.head_count_kv", sizes.kv_heads},
      {prefix + "attention.key_length", sizes.head_dim},
      {prefix + "attention.value_length", sizes.head_dim},
      {prefix + "rope.freq_base", 10000.0f},
      {prefix + "rope.dimension_count", sizes.head_dim},
  };
  const bool layer_norm = form.architecture == "cohere2";
  keys.push_back(
      {prefix + (layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
       1e-5f});
  if (form.architecture == "llama" || form.architecture == "gemma3") {
    add_scored_vocabulary(&keys);
  } else {
    add_merged_vocabulary(&keys);
  }
  keys.push_back({"tokenizer.ggml.bos_token_id", 1u});
  keys.push_back({"tokenizer.ggml.eos_token_id", 2u});
  keys.push_back({"tokenizer.ggml.add_bos_token", true});
  // Each template is a process of its own when it loads: some families of all have one.
  if (form.architecture == "llama" || form.architecture == "qwen2") {
    keys.push_back({"tokenizer.chat_template",
                    "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"});
  }
  return keys;
}

const std::vector<std::string_view> kPreNorms = {"attn_norm", "ffn_norm"};

const std::vector<GgufForm>& forms() {
  static const std::vector<GgufForm> kForms = {
      {.name = "llama",
       .architecture = "llama",
       .norms = kPreNorms,
       .dtypes = {DType::kQ8_0, DType::kQ4_0, DType::kF16, DType::kQ5_1, DType::kBF16},
       .own_head = true,
       .factors = {"rope_freqs.weight"}},
      {.name = "llama of superblocks",
       .architecture = "llama",
       .sizes = kWide,
       .norms = kPreNorms,
       .dtypes = {DType::kQ4K, DType::kQ6K, DType::kQ5K, DType::kQ3K, DType::kIQ4XS, DType::kQ2K}},
      {.name = "gemma3",
       .architecture = "gemma3",
       .norms = {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"},
       .dtypes = {DType::kQ8_0, DType::kBF16, DType::kIQ4NL},
       .qk_norm = true,
       .keys = {{"attention.sliding_window", 4u}}},
      {.name = "phi3",
       .architecture = "phi3",
       .norms = kPreNorms,
       .dtypes = {DType::kF16, DType::kQ8_0},
       .fused = true,
       .own_head = true,
       .keys = {{"rope.scaling.original_context_length", 6u}},
       .factors = {"rope_factors_short.weight", "rope_factors_long.weight"}},
      {.name = "qwen2",
       .architecture = "qwen2",
       .norms = kPreNorms,
       .dtypes = {DType::kF32, DType::kMXFP4},
       .biases = true},
      {.name = "granite",
       .architecture = "granite",
       .norms = kPreNorms,
       .fused = true,
       .keys = {{"rope.scaling.finetuned", false}, {"logit_scale", 4.0f}}},
      {.name = "exaone4",
       .architecture = "exaone4",
       .norms = {"post_attention_norm", "post_ffw_norm"},
       .qk_norm = true,
       .keys = {{"attention.sliding_window", 5u}}},
      {.name = "cohere2",
       .architecture = "cohere2",
       .norms = {"attn_norm"},
       .dtypes = {DType::kQ4_1, DType::kQ5_0},
       .keys = {{"attention.sliding_window", 3u}, {"logit_scale", 0.25f}}},
  };
  return kForms;
}

GgufModel gguf_model(const GgufForm& form) {
  GgufTensors tensors(form);
  GgufModel model = {std::string(form.name), std::string(form.architecture), keys_of(form),
                     std::move(tensors.builder())};
  for (const GgufKey& key : form.keys) {
    model.keys.push_back({model.architecture + "." + key.name, key.value});
  }
  return model;
}

// What a key may also hold.
const std::vector<GgufKey::Value> kOddValues = {0u,
                                                1u,
                                                2u,
                                                3u,
                                                4u,
                                                5u,
                                                7u,
                                                16u,
                                                31u,
                                                32u,
                                                64u,
                                                513u,
                                                1024u,
                                                4096u,
                                                4097u,
                                                65536u,
                                                UINT32_MAX,
                                                -1,
                                                INT32_MIN,
                                                INT32_MAX,
                                                UINT64_MAX,
                                                uint64_t{1} << 40,
                                                int64_t{1} << 62,
                                                INT64_MIN,
                                                INT64_MAX,
                                                int64_t{-1},
                                                0.0f,
                                                -1.0f,
                                                0.5f,
                                                1e-30f,
                                                1e30f,
                                                3.4e38f,
                                                __builtin_inff(),
                                                __builtin_nanf(""),
                                                1e-5,
                                                1e300,
                                                -1e300,
                                                __builtin_inf(),
                                                __builtin_nan(""),
                                                2.0,
                                                true,
                                                false,
                                                "",
                                                "llama",
                                                "gemma2",
                                                "gemma3",
                                                "phi3",
                                                "qwen2",
                                                "cohere2",
                                                "granite",
                                                "none",
                                                "linear",
                                                "dynamic",
                                                "llama3",
                                                "yarn",
                                                "longrope",
                                                "gpt2",
                                                "{{",
                                                "{",
                                                std::vector<std::string>{},
                                                std::vector<std::string>{"a", "a", ""},
                                                std::vector<float>{},
                                                std::vector<float>{1, 2},
                                                std::vector<int32_t>{},
                                                std::vector<int32_t>{1, 0},
                                                std::vector<int32_t>{4, 4},
                                                std::vector<int32_t>{-1, INT32_MIN, INT32_MAX},
                                                std::vector<int32_t>{0, 0, 0, 0, 0, 0},
                                                std::vector<int32_t>{1, 1, 1, 1, 1, 1},
                                                std::vector<int32_t>{2, 0, 2, 0, 2, 0}};

GgufKey::Value odd_value(std::mt19937_64& random) {
  return kOddValues[random() % kOddValues.size()];
}

// Without the architecture in front.
constexpr auto kMoreKeys = std::to_array<std::string_view>({"rope.scaling.type",
                                                            "rope.scaling.factor",
                                                            "rope.scaling.original_context_length",
                                                            "rope.scaling.yarn_beta_fast",
                                                            "rope.scaling.yarn_beta_slow",
                                                            "rope.scaling.yarn_attn_factor",
                                                            "rope.scaling.yarn_log_multiplier",
                                                            "rope.scaling.attn_factor",
                                                            "rope.scaling.finetuned",
                                                            "rope.scale_linear",
                                                            "rope.freq_base_swa",
                                                            "rope.dimension_sections",
                                                            "rope.dimension_count",
                                                            "nextn_predict_layers",
                                                            "block_count",
                                                            "attention.sliding_window",
                                                            "attention.sliding_window_pattern",
                                                            "attention.scale",
                                                            "attention.causal",
                                                            "attention.head_count",
                                                            "attention.head_count_kv",
                                                            "attention.key_length",
                                                            "attention.value_length",
                                                            "attention.temperature_scale",
                                                            "attn_logit_softcapping",
                                                            "final_logit_softcapping",
                                                            "embedding_scale",
                                                            "residual_scale",
                                                            "logit_scale",
                                                            "expert_count",
                                                            "feed_forward_length",
                                                            "context_length",
                                                            "embedding_length",
                                                            "expert_used_count",
                                                            "expert_shared_count",
                                                            "expert_feed_forward_length",
                                                            "expert_shared_feed_forward_length",
                                                            "expert_group_count",
                                                            "expert_group_used_count",
                                                            "expert_weights_norm",
                                                            "expert_weights_scale",
                                                            "expert_gating_func",
                                                            "leading_dense_block_count",
                                                            "interleave_moe_layer_step",
                                                            "attention.clamp_kqv",
                                                            "attention.q_lora_rank",
                                                            "attention.kv_lora_rank",
                                                            "attention.key_length_mla",
                                                            "attention.value_length_mla",
                                                            "attention.indexer.head_count",
                                                            "attention.indexer.key_length",
                                                            "attention.indexer.top_k",
                                                            "attention.key_length_swa",
                                                            "attention.value_length_swa",
                                                            "attention.shared_kv_layers",
                                                            "embedding_length_per_layer_input",
                                                            "rope.dimension_count_swa",
                                                            "full_attention_interval",
                                                            "attention.recurrent_layers",
                                                            "ssm.conv_kernel",
                                                            "ssm.state_size",
                                                            "ssm.group_count",
                                                            "ssm.time_step_rank",
                                                            "ssm.inner_size",
                                                            "shortconv.l_cache",
                                                            "kda.head_dim",
                                                            "swiglu_clamp_exp",
                                                            "attention.layer_norm_epsilon",
                                                            "attention.max_alibi_bias",
                                                            "use_parallel_residual"});

constexpr std::array<std::string_view, 13> kMoreGeneralKeys = {"general.type",
                                                               "general.sampling.temp",
                                                               "general.sampling.top_k",
                                                               "tokenizer.ggml.pre",
                                                               "tokenizer.ggml.model",
                                                               "tokenizer.ggml.eot_token_id",
                                                               "tokenizer.ggml.eom_token_id",
                                                               "tokenizer.ggml.unknown_token_id",
                                                               "tokenizer.ggml.padding_token_id",
                                                               "tokenizer.ggml.add_eos_token",
                                                               "tokenizer.ggml.scores",
                                                               "tokenizer.ggml.merges",
                                                               "tokenizer.huggingface.json"};

void set_key(std::vector<GgufKey>* keys, const std::string& name, GgufKey::Value value) {
  for (GgufKey& key : *keys) {
    if (key.name != name) continue;
    key.value = std::move(value);
    return;
  }
  keys->push_back({name, std::move(value)});
}

// The same tensors read as another family's: those it lacks are named, those it has are run.
void change_family(const std::string& architecture, std::vector<GgufKey>* keys,
                   std::mt19937_64& random) {
  constexpr std::array<std::string_view, 12> kArchitectures = {
      "llama",   "mistral3", "qwen2", "qwen3",    "gemma2", "gemma3",
      "granite", "smollm3",  "glm4",  "seed_oss", "phi3",   "olmo2"};
  const std::string other(kArchitectures[random() % kArchitectures.size()]);
  for (GgufKey& key : *keys) {
    if (key.name.starts_with(architecture + ".")) {
      key.name = other + key.name.substr(architecture.size());
    } else if (key.name == "general.architecture") {
      key.value = other;
    }
  }
}

void write_key(GgufBuilder* builder, const GgufKey& key) {
  struct Writer {
    GgufBuilder* to;
    const std::string& name;
    void operator()(uint32_t value) { to->key(name, testing::kU32, value); }
    void operator()(int32_t value) { to->key(name, testing::kI32, value); }
    void operator()(uint64_t value) { to->key(name, testing::kU64, value); }
    void operator()(int64_t value) { to->key(name, testing::kI64, value); }
    void operator()(float value) { to->key(name, testing::kF32, value); }
    void operator()(double value) { to->key(name, testing::kF64, value); }
    void operator()(bool value) { to->key(name, testing::kBool, uint8_t{value}); }
    void operator()(const std::string& value) { to->text_key(name, value); }
    void operator()(const std::vector<std::string>& values) { to->texts_key(name, values); }
    void operator()(const std::vector<float>& values) {
      to->array_key(name, testing::kF32, values);
    }
    void operator()(const std::vector<int32_t>& values) {
      to->array_key(name, testing::kI32, values);
    }
  };
  std::visit(Writer{builder, key.name}, key.value);
}

}  // namespace

void add_merged_vocabulary(std::vector<GgufKey>* keys) {
  std::vector<std::string> tokens = {"!", "a", "b", "c", "ab", "abc", "Ġ", "Ġab", "<|im_end|>"};
  std::vector<int32_t> types = {1, 1, 1, 1, 1, 1, 1, 1, 3};
  keys->push_back({"tokenizer.ggml.model", "gpt2"});
  keys->push_back({"tokenizer.ggml.pre", "qwen2"});
  keys->push_back({"tokenizer.ggml.tokens", std::move(tokens)});
  keys->push_back({"tokenizer.ggml.token_type", std::move(types)});
  keys->push_back({"tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c", "Ġ ab"}});
}

Sizes odd_sizes(std::mt19937_64& random) {
  constexpr std::array<uint32_t, 9> kWidths = {1, 2, 16, 31, 32, 33, 64, 96, 256};
  constexpr std::array<uint32_t, 9> kNumHeads = {1, 2, 3, 4, 4, 6, 8, 33, 40};
  constexpr std::array<uint32_t, 5> kNumKvHeads = {1, 1, 2, 3, 8};
  constexpr std::array<uint32_t, 17> kHeadDims = {1,  2,  3,  4,   6,   7,   8,   16,  30,
                                                  32, 64, 80, 128, 256, 512, 514, 1024};
  constexpr std::array<uint32_t, 5> kVocabSizes = {1, 2, 17, 40, 300};
  const auto one_of = [&](const auto& choices) { return choices[random() % choices.size()]; };
  const uint32_t head_dim = one_of(kHeadDims);
  const uint32_t kv_heads = head_dim > 64 ? 1 : one_of(kNumKvHeads);
  // Mostly a whole number of heads to a key-value head.
  const bool whole = head_dim > 64 || random() % 8 != 0;
  const auto per_kv_head = static_cast<uint32_t>(1 + random() % 5);
  return {.hidden = one_of(kWidths),
          .heads = whole ? kv_heads * per_kv_head : one_of(kNumHeads),
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn = one_of(kWidths),
          .vocab = one_of(kVocabSizes),
          .layers = static_cast<uint32_t>(1 + random() % 2)};
}

std::vector<GgufModel> gguf_models() {
  std::vector<GgufModel> models;
  for (const GgufForm& form : forms()) models.push_back(gguf_model(form));
  return models;
}

GgufModel resized_gguf_model(std::mt19937_64& random) {
  GgufForm form = forms()[random() % forms().size()];
  form.sizes = odd_sizes(random);
  return gguf_model(form);
}

Seed gguf_file(const GgufModel& model, const std::vector<GgufKey>& keys) {
  GgufBuilder builder = model.tensors;
  for (const GgufKey& key : keys) write_key(&builder, key);
  return gguf_seed(model.name, builder);
}

std::vector<GgufKey> mutate_keys(const GgufModel& model, std::mt19937_64& random) {
  std::vector<GgufKey> keys = model.keys;
  const uint64_t num_mutations = 1 + random() % 3;
  for (uint64_t i = 0; i < num_mutations; ++i) {
    const size_t index = random() % keys.size();
    switch (random() % 8) {
      case 0:
        if (keys.size() > 1) keys.erase(keys.begin() + static_cast<ptrdiff_t>(index));
        break;
      case 1:
        std::swap(keys[index].value, keys[random() % keys.size()].value);
        break;
      case 2:
      case 3:
        keys[index].value = odd_value(random);
        break;
      case 4: {
        const std::string_view name = kMoreGeneralKeys[random() % kMoreGeneralKeys.size()];
        set_key(&keys, std::string(name), odd_value(random));
        break;
      }
      default: {
        const std::string_view name = kMoreKeys[random() % kMoreKeys.size()];
        set_key(&keys, fmt::format("{}.{}", model.architecture, name), odd_value(random));
      }
    }
  }
  if (random() % 8 == 0) change_family(model.architecture, &keys, random);
  return keys;
}

}  // namespace headrace::fuzz
