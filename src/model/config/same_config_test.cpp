// A published model and its conversion to GGUF are one network: what config.json and the keys of a
// GGUF file say must come to the same ModelConfig.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <variant>

#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace same_config_test {

using testing::FakeCheckpoint;
using KeyNumber = std::variant<int64_t, double, std::string_view>;

// Eight layers of width 64, with what the two formats say of it beyond their names for the sizes.
struct Pair {
  std::string_view model_type;
  std::string_view more;  // of config.json
  std::string_view architecture;
  std::vector<std::pair<std::string_view, KeyNumber>> keys;
  std::vector<std::pair<std::string_view, std::vector<int64_t>>> tensors = {};  // of each layer
};

FakeCheckpoint published(const Pair& pair) {
  return FakeCheckpoint(fmt::format(
      R"({{"model_type": "{}", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5,
          "tie_word_embeddings": true, "eos_token_id": [2, 7], "bos_token_id": 1{}{}}})",
      pair.model_type, pair.more.empty() ? "" : ", ", pair.more));
}

FakeCheckpoint converted(const Pair& pair) {
  FakeCheckpoint file(CheckpointKind::kGguf);
  const std::string prefix = std::string(pair.architecture) + ".";
  file.key("general.architecture", pair.architecture)
      .key("tokenizer.ggml.bos_token_id", int64_t{1})
      .key("tokenizer.ggml.eos_token_id", int64_t{2})
      .key("tokenizer.ggml.eot_token_id", int64_t{7})
      .key(prefix + "embedding_length", int64_t{64})
      .key(prefix + "context_length", int64_t{512})
      .key(prefix + "block_count", int64_t{8})
      .key(prefix + "feed_forward_length", int64_t{96})
      .key(prefix + "attention.head_count", int64_t{4})
      .key(prefix + "attention.head_count_kv", int64_t{2})
      .key(prefix + "attention.layer_norm_rms_epsilon", 1e-5)
      .key(prefix + "attention.layer_norm_epsilon", 1e-5)
      .tensor("token_embd.weight", {256, 64});
  for (const auto& [key, value] : pair.keys) {
    std::visit([&](auto number) { file.key(prefix + std::string(key), number); }, value);
  }
  for (int layer = 0; layer < 8; ++layer) {
    for (const auto& [name, shape] : pair.tensors) {
      file.tensor(fmt::format("blk.{}.{}", layer, name), shape);
    }
  }
  return file;
}

// The original length belongs to ropes that are stretched from it.
std::string shown(const RopeConfig& rope) {
  const bool stretched = rope.type == RopeType::kLlama3 || rope.type == RopeType::kYarn ||
                         rope.type == RopeType::kLongrope;
  return fmt::format(
      "rope {} {} dims {} theta {} factor {} attention {:.6f} original {} betas {} {}",
      static_cast<int>(rope.type), static_cast<int>(rope.pairing), rope.rope_dims, rope.rope_theta,
      rope.factor, rope.attention_factor, stretched ? rope.original_max_position_embeddings : 0,
      rope.beta_fast, rope.beta_slow);
}

std::string shown(const ExpertConfig& experts) {
  return fmt::format(
      "experts {}/{} width {} score {} bias {} groups {}/{} by {} norm {} + {} scale {} clamp {} "
      "{} "
      "shared {} {}",
      experts.num_experts_per_token, experts.num_experts, experts.intermediate_size,
      static_cast<int>(experts.score), experts.selection_bias, experts.num_groups_kept,
      experts.num_groups, static_cast<int>(experts.group_score), experts.normalise,
      experts.normalise_epsilon, experts.scale, experts.swiglu_alpha, experts.swiglu_limit,
      experts.shared_intermediate_size, experts.shared_gate);
}

std::string shown(const LayerConfig& layer) {
  return fmt::format(
      "mixer {} mlp {} heads {}/{} of {} window {} rope {} scale {:.6f} cap {} qk {} width {}\n  "
      "{}\n",
      static_cast<int>(layer.mixer), static_cast<int>(layer.mlp), layer.num_attention_heads,
      layer.num_key_value_heads, layer.head_dim, layer.sliding_window, layer.rope_idx,
      layer.attention_scale, layer.attention_softcap, static_cast<int>(layer.qk_norm),
      layer.intermediate_size, shown(layer.experts));
}

// All that the arithmetic depends on and that does not belong to the way a file stores it.
std::string shown(const ModelConfig& config) {
  std::string text = fmt::format(
      "{} vocabulary {} width {} length {} tied {}\nnorm {} {} activation {} before {} after {} "
      "parallel {}\nscales {} {} {} cap {} position {} {}\nids {} {}\n",
      config.family, config.vocab_size, config.hidden_size, config.max_position_embeddings,
      config.tie_word_embeddings, static_cast<int>(config.norm), config.norm_eps,
      static_cast<int>(config.activation), config.pre_norms, config.post_norms,
      config.parallel_block, config.embedding_scale, config.residual_scale, config.logit_scale,
      config.logit_softcap, config.query_position_beta, config.query_position_original,
      config.bos_token_id, config.eos_token_ids.size());
  for (const RopeConfig& rope : config.ropes) text += shown(rope) + "\n";
  for (const LayerConfig& layer : config.layers) text += shown(layer);
  return text;
}

void expect_same(const Pair& pair) {
  SCOPED_TRACE(pair.model_type);
  const auto json = read_config_json(published(pair));
  const auto gguf = read_config_gguf(converted(pair));
  ASSERT_TRUE(json.ok()) << json.error().message;
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(shown(*json), shown(*gguf));
}

TEST(SameConfig, OfPlainLayers) {
  const Pair pairs[] = {
      {"llama", R"("rope_theta": 5e5)", "llama", {{"rope.freq_base", 5e5}}},
      {"qwen2", R"("rope_theta": 1e6)", "qwen2", {{"rope.freq_base", 1e6}}},
      {"qwen3", R"("rope_theta": 1e6)", "qwen3", {{"rope.freq_base", 1e6}}},
      {"olmo2", R"("rope_theta": 5e5)", "olmo2", {{"rope.freq_base", 5e5}}},
      {"phi3", R"("original_max_position_embeddings": 512)", "phi3", {}},
      {"seed_oss", R"("rope_theta": 1e7)", "seed_oss", {{"rope.freq_base", 1e7}}},
      {"smollm3", "", "smollm3", {{"rope.freq_base", 2e6}}},
      {"glm4", "", "glm4", {{"rope.dimension_count", int64_t{8}}}},
  };
  for (const Pair& pair : pairs) expect_same(pair);
}

TEST(SameConfig, OfLayersWithWindows) {
  const Pair pairs[] = {
      {"mistral", R"("sliding_window": 32)", "llama", {{"attention.sliding_window", int64_t{32}}}},
      {"olmo3",
       R"("sliding_window": 32)",
       "olmo2",
       {{"attention.sliding_window", int64_t{32}}, {"rope.freq_base", 5e5}}},
      {"gemma2",
       R"("sliding_window": 32, "query_pre_attn_scalar": 16)",
       "gemma2",
       {{"attention.sliding_window", int64_t{32}}}},
      {"gemma3_text",
       R"("sliding_window": 32, "query_pre_attn_scalar": 16, "sliding_window_pattern": 3)",
       "gemma3",
       {{"attention.sliding_window", int64_t{32}},
        {"attention.sliding_window_pattern", int64_t{3}},
        {"rope.freq_base", 1e6}}},
      {"cohere2",
       R"("sliding_window": 32, "logit_scale": 0.25)",
       "cohere2",
       {{"attention.sliding_window", int64_t{32}}, {"logit_scale", 0.25}}},
      {"exaone4",
       R"("sliding_window": 32)",
       "exaone4",
       {{"attention.sliding_window", int64_t{32}}}},
  };
  for (const Pair& pair : pairs) expect_same(pair);
}

TEST(SameConfig, OfScaledRopes) {
  const Pair pairs[] = {
      {"llama",
       R"("rope_scaling": {"rope_type": "linear", "factor": 4})",
       "llama",
       {{"rope.scaling.type", "linear"}, {"rope.scaling.factor", 4.0}}},
      {"qwen3",
       R"("rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4,
          "original_max_position_embeddings": 128})",
       "qwen3",
       {{"rope.freq_base", 1e6},
        {"rope.scaling.type", "yarn"},
        {"rope.scaling.factor", 4.0},
        {"rope.scaling.original_context_length", int64_t{128}}}},
      {"ministral3",
       R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4,
          "original_max_position_embeddings": 128, "mscale": 1, "mscale_all_dim": 1,
          "beta_fast": 16, "beta_slow": 2, "llama_4_scaling_beta": 0.5})",
       "mistral3",
       {{"rope.freq_base", 1e6},
        {"rope.scaling.type", "yarn"},
        {"rope.scaling.factor", 4.0},
        {"rope.scaling.original_context_length", int64_t{128}},
        {"rope.scaling.yarn_beta_fast", 16.0},
        {"rope.scaling.yarn_beta_slow", 2.0},
        {"rope.scaling.yarn_log_multiplier", 1.0},
        {"attention.temperature_scale", 0.5}}},
  };
  for (const Pair& pair : pairs) expect_same(pair);
}

TEST(SameConfig, OfScaledStreams) {
  expect_same({"granite",
               R"("logits_scaling": 4, "embedding_multiplier": 12, "residual_multiplier": 0.5,
                  "attention_multiplier": 0.125)",
               "granite",
               {{"logit_scale", 4.0},
                {"embedding_scale", 12.0},
                {"residual_scale", 0.5},
                {"attention.scale", 0.125}}});
}

TEST(SameConfig, OfMixturesOfExperts) {
  const std::vector<std::pair<std::string_view, KeyNumber>> counts = {
      {"expert_count", int64_t{8}}, {"expert_used_count", int64_t{2}}, {"rope.freq_base", 1e6}};
  const std::vector<std::pair<std::string_view, std::vector<int64_t>>> stacks = {
      {"ffn_gate_inp.weight", {8, 64}}, {"ffn_down_exps.weight", {8, 64, 24}}};
  expect_same({"qwen3_moe",
               R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "norm_topk_prob": true, "rope_theta": 1e6)",
               "qwen3moe", counts, stacks});
  auto shared = stacks;
  shared.push_back({"ffn_down_shexp.weight", {64, 40}});
  shared.push_back({"ffn_gate_inp_shexp.weight", {64}});
  expect_same({"qwen2_moe",
               R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "shared_expert_intermediate_size": 40, "rope_theta": 1e6)",
               "qwen2moe", counts, shared});
  auto wide = stacks;
  wide[1].second = {8, 64, 96};
  expect_same({"mixtral",
               R"("num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
                  "rope_theta": 1e6)",
               "llama", counts, wide});
}

// A head of its own is a tensor in the one format and a key in the other.
TEST(SameConfig, OfUntiedHeads) {
  const Pair tied{"llama", "", "llama", {}};
  const Pair untied{
      "llama", R"("tie_word_embeddings": false)", "llama", {}};  // the last one counts
  FakeCheckpoint file = converted(tied);
  EXPECT_TRUE(read_config_gguf(file).value().tie_word_embeddings);
  file.tensor("output.weight", {256, 64});
  const ModelConfig config = read_config_gguf(file).value();
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(shown(config), shown(read_config_json(published(untied)).value()));
}

// The comparison itself sees what it is for.
TEST(SameConfig, DifferencesShow) {
  const std::string plain = shown(read_config_json(published({"llama", "", "llama", {}})).value());
  for (const std::string_view change :
       {R"("rope_theta": 2e4)", R"("num_key_value_heads": 4)", R"("hidden_act": "gelu")",
        R"("max_position_embeddings": 513)", R"("rms_norm_eps": 2e-5)", R"("bos_token_id": 3)",
        R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})"}) {
    const auto other = read_config_json(published({"llama", change, "llama", {}}));
    ASSERT_TRUE(other.ok()) << other.error().message;
    EXPECT_NE(shown(*other), plain) << change;
  }
}

}  // namespace same_config_test
}  // namespace headrace
