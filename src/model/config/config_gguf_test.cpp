#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/config_files.h"
#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace config_gguf_test {

using testing::FakeCheckpoint;

// A file of this architecture with eight layers and the keys that every converter writes.
FakeCheckpoint file_of(std::string_view architecture, int64_t num_layers = 8) {
  FakeCheckpoint checkpoint(CheckpointKind::kGguf);
  const std::string prefix = std::string(architecture) + ".";
  checkpoint.key("general.architecture", architecture)
      .key(prefix + "embedding_length", int64_t{64})
      .key(prefix + "context_length", int64_t{512})
      .key(prefix + "block_count", num_layers)
      .key(prefix + "feed_forward_length", int64_t{96})
      .key(prefix + "attention.head_count", int64_t{4})
      .key(prefix + "attention.head_count_kv", int64_t{2})
      .tensor("token_embd.weight", {256, 64});
  return checkpoint;
}

// With the keys that its layers need; one of them may have another value.
FakeCheckpoint file_of(const Family& family, std::string_view changed = "", int64_t value = 0) {
  FakeCheckpoint checkpoint = file_of(family.gguf.architecture);
  struct Key {
    const char* name;
    int64_t value;
  };
  constexpr Key kKeys[] = {{"ssm.group_count", 2}, {"ssm.time_step_rank", 6},
                           {"ssm.state_size", 16}, {"ssm.inner_size", 144},
                           {"ssm.conv_kernel", 4}, {"full_attention_interval", 4}};
  const std::string prefix = std::string(family.gguf.architecture) + ".";
  for (const Key& key : kKeys) {
    if (family.delta == nullptr && family.scan == nullptr) break;
    checkpoint.key(prefix + key.name, key.name == changed ? value : key.value);
  }
  if (family.defaults.activation == "xielu") {
    checkpoint.key("xielu.alpha_p", 0.5).key("xielu.alpha_n", 0.5);
  }
  if (family.streams != nullptr) checkpoint.tensor("blk.0.laurel_l.weight", {8, 64});
  return checkpoint;
}

ModelConfig read(const FakeCheckpoint& checkpoint) {
  const auto config = read_config_gguf(checkpoint);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

std::string windows_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) text += layer.sliding_window > 0 ? 's' : 'f';
  return text;
}

std::string ropes_of(const ModelConfig& config) {
  std::string text;
  for (const LayerConfig& layer : config.layers) {
    text += layer.rope_idx < 0 ? '-' : static_cast<char>('0' + layer.rope_idx);
  }
  return text;
}

TEST(ConfigGguf, EveryFamilysArchitectureLoads) {
  int num_families = 0;
  for (const Family& family : families()) {
    if (family.gguf.architecture.empty()) continue;
    if (family.latent != nullptr) continue;  // needs more keys: read_latent_test.cpp
    const ModelConfig config = read(file_of(family));
    EXPECT_EQ(config.architecture, family.gguf.architecture);
    EXPECT_EQ(config.layers[7].head_dim, 16);
    EXPECT_TRUE(config.tie_word_embeddings);
    EXPECT_EQ(config.vocab_size, 256);
    ++num_families;
  }
  EXPECT_GE(num_families, 16);
}

TEST(ConfigGguf, FormsOfOneArchitectureAreToldApart) {
  FakeCheckpoint neox = file_of("gptneox");
  EXPECT_EQ(read(neox).family, "gpt_neox");
  neox.key("gptneox.use_parallel_residual", false);
  EXPECT_EQ(read(neox).family, "gpt_neox_serial");
  EXPECT_FALSE(read(neox).parallel_block);
  FakeCheckpoint falcon = file_of("falcon");
  EXPECT_EQ(read(falcon).family, "falcon_one_norm");
  falcon.tensor("blk.0.attn_norm_2.weight", {64});
  EXPECT_EQ(read(falcon).family, "falcon_two_norms");
}

TEST(ConfigGguf, NetworksThatAreNotShapedLikeLlama) {
  FakeCheckpoint mpt = file_of("mpt");
  mpt.key("mpt.attention.max_alibi_bias", 4.0);
  const ModelConfig alibi = read(mpt);
  EXPECT_EQ(alibi.alibi_max_bias, 4);
  EXPECT_EQ(alibi.alibi_scale, 1);
  EXPECT_EQ(ropes_of(alibi), "--------");
  EXPECT_TRUE(alibi.ropes.empty());
  EXPECT_EQ(alibi.layers[0].mlp, MlpKind::kPlain);
  EXPECT_FALSE(alibi.norm_bias);
  FakeCheckpoint gpt = file_of("gpt2");
  gpt.tensor("output_norm.bias", {64});
  const ModelConfig learned = read(gpt);
  EXPECT_TRUE(learned.norm_bias);
  EXPECT_TRUE(learned.learned_positions);
  EXPECT_EQ(learned.qkv_order, QkvOrder::kParts);
  EXPECT_EQ(learned.norm, NormKind::kLayer);
  FakeCheckpoint cohere = file_of("command-r");
  EXPECT_EQ(read(cohere).layers[0].qk_norm, QkNorm::kNone);
  cohere.tensor("blk.0.attn_q_norm.weight", {4, 16});
  EXPECT_EQ(read(cohere).layers[0].qk_norm, QkNorm::kLayerPerHead);
}

TEST(ConfigGguf, WindowsThatTheFileLeavesToTheArchitecture) {
  EXPECT_EQ(windows_of(read(file_of("gemma2"))), "sfsfsfsf");
  EXPECT_EQ(windows_of(read(file_of("gemma3"))), "sssssfss");
  EXPECT_EQ(windows_of(read(file_of("cohere2"))), "sssfsssf");
  EXPECT_EQ(windows_of(read(file_of("exaone4"))), "ffffffff");
  EXPECT_EQ(ropes_of(read(file_of("exaone4"))), "00000000");
  const ModelConfig deep = read(file_of("exaone4", 64));
  EXPECT_EQ(windows_of(deep).substr(0, 8), "sssfsssf");
  EXPECT_EQ(ropes_of(deep).substr(0, 8), "000-000-");
  EXPECT_EQ(deep.layers[0].sliding_window, 4096);
  EXPECT_EQ(ropes_of(read(file_of("smollm3"))), "000-000-");
  EXPECT_EQ(ropes_of(read(file_of("gemma3"))), "11111011");
}

TEST(ConfigGguf, LayersOfTheDeltaRule) {
  const ModelConfig config = read(file_of(family_named("qwen3_5")));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(config.layers[i].mixer == MixerKind::kAttention, i % 4 == 3) << i;
  }
  const DeltaConfig& delta = config.layers[0].delta;
  EXPECT_EQ(delta.num_key_heads, 2);
  EXPECT_EQ(delta.num_value_heads, 6);
  EXPECT_EQ(delta.key_head_dim, 16);
  EXPECT_EQ(delta.value_head_dim, 24);
  EXPECT_EQ(delta.conv_kernel, 4);
  EXPECT_TRUE(delta.tiled_heads);
  EXPECT_FALSE(config.norm_weight_plus_one);  // the file's norms are whole
  const auto error_with = [](std::string_view key, int64_t value) {
    const auto refused = read_config_gguf(file_of(family_named("qwen3_5"), key, value));
    EXPECT_FALSE(refused.ok()) << key;
    return refused.ok() ? "" : refused.error().message;
  };
  EXPECT_NE(error_with("ssm.inner_size", 145).find("must be a multiple"), std::string::npos);
  EXPECT_NE(error_with("ssm.time_step_rank", -6).find("-6 value heads"), std::string::npos);
  EXPECT_NE(error_with("ssm.state_size", 100'000).find("linear_key_head_dim is 100000"),
            std::string::npos);
  EXPECT_NE(error_with("full_attention_interval", 0).find("at least 1"), std::string::npos);
}

TEST(ConfigGguf, WindowsThatTheFileStates) {
  FakeCheckpoint period = file_of("gemma3");
  period.key("gemma3.attention.sliding_window", int64_t{16})
      .key("gemma3.attention.sliding_window_pattern", int64_t{2});
  EXPECT_EQ(windows_of(read(period)), "sfsfsfsf");
  FakeCheckpoint flags = file_of("olmo2");
  flags.key("olmo2.attention.sliding_window", int64_t{16})
      .key("olmo2.attention.sliding_window_pattern",
           MetadataValue::Array(
               std::vector<bool>{true, false, false, true, false, false, false, false}));
  const ModelConfig olmo = read(flags);
  EXPECT_EQ(olmo.family, "olmo3");
  EXPECT_EQ(windows_of(olmo), "sffsffff");
  FakeCheckpoint mistral = file_of("llama");
  mistral.key("llama.attention.sliding_window", int64_t{16});
  EXPECT_EQ(windows_of(read(mistral)), "ssssssss");
}

TEST(ConfigGguf, SizesPerLayer) {
  FakeCheckpoint checkpoint(CheckpointKind::kGguf);
  checkpoint.key("general.architecture", std::string_view("llama"))
      .key("llama.embedding_length", int64_t{64})
      .key("llama.block_count", int64_t{2})
      .key("llama.feed_forward_length", MetadataValue::Array(std::vector<int64_t>{96, 128}))
      .key("llama.attention.head_count", int64_t{4})
      .key("llama.attention.head_count_kv", MetadataValue::Array(std::vector<int64_t>{4, 1}))
      .tensor("token_embd.weight", {256, 64});
  const ModelConfig config = read(checkpoint);
  EXPECT_EQ(config.layers[0].intermediate_size, 96);
  EXPECT_EQ(config.layers[1].intermediate_size, 128);
  EXPECT_EQ(config.layers[0].num_key_value_heads, 4);
  EXPECT_EQ(config.layers[1].num_key_value_heads, 1);
}

TEST(ConfigGguf, RopeScaling) {
  FakeCheckpoint linear = file_of("llama");
  linear.key("llama.rope.scaling.factor", 4.0);
  EXPECT_EQ(read(linear).ropes[0].type, RopeType::kLinear);
  FakeCheckpoint yarn = file_of("mistral3");
  yarn.key("mistral3.rope.scaling.type", std::string_view("yarn"))
      .key("mistral3.rope.scaling.factor", 4.0)
      .key("mistral3.rope.scaling.original_context_length", int64_t{64})
      .key("mistral3.rope.scaling.yarn_log_multiplier", 1.0)
      .key("mistral3.attention.temperature_scale", 0.5);
  const ModelConfig config = read(yarn);
  EXPECT_EQ(config.ropes[0].type, RopeType::kYarn);
  EXPECT_EQ(config.ropes[0].attention_factor, 1);
  EXPECT_EQ(config.query_position_beta, 0.5f);
  EXPECT_EQ(config.query_position_original, 64);
  FakeCheckpoint granite = file_of("granite");
  granite.key("granite.rope.scaling.finetuned", false);
  EXPECT_EQ(ropes_of(read(granite)), "--------");
}

TEST(ConfigGguf, WhatCannotRunIsRefusedByName) {
  const auto error_of = [](const FakeCheckpoint& checkpoint) {
    const auto config = read_config_gguf(checkpoint);
    EXPECT_FALSE(config.ok());
    return config.ok() ? Error{} : config.error();
  };
  FakeCheckpoint experts = file_of("qwen3");
  experts.key("qwen3.expert_count", int64_t{8});
  EXPECT_NE(error_of(experts).message.find("has 8 experts per layer"), std::string::npos);
  FakeCheckpoint adapter(CheckpointKind::kGguf);
  adapter.key("general.type", std::string_view("adapter"));
  EXPECT_NE(error_of(adapter).message.find("'adapter'"), std::string::npos);
  EXPECT_EQ(error_of(FakeCheckpoint(CheckpointKind::kGguf)).code, ErrorCode::kNotFound);
  FakeCheckpoint encoder = file_of("llama");
  encoder.key("llama.attention.causal", false);
  EXPECT_EQ(error_of(encoder).code, ErrorCode::kUnsupported);
  FakeCheckpoint deepseek = file_of("deepseek2");
  EXPECT_NE(error_of(deepseek).message.find("kv_lora_rank"), std::string::npos);
  FakeCheckpoint recurrent = file_of("qwen3", 2);
  recurrent.key("qwen3.attention.key_length", int64_t{16})
      .key("qwen3.attention.value_length", int64_t{32});
  EXPECT_EQ(error_of(recurrent).code, ErrorCode::kUnsupported);
  EXPECT_NE(error_of(file_of("llama", 0)).message.find("block_count is 0"), std::string::npos);
  FakeCheckpoint partial = file_of("llama");
  partial.key("llama.rope.dimension_count", int64_t{8});
  EXPECT_NE(error_of(partial).message.find("rope.dimension_count is 8"), std::string::npos);
  FakeCheckpoint no_table = file_of("llama");
  no_table.remove("token_embd.weight");
  EXPECT_NE(error_of(no_table).message.find("token_embd"), std::string::npos);
}

TEST(ConfigGguf, RopeFactorsAreAFewNumbers) {
  for (const int64_t count : {0, 4097}) {
    FakeCheckpoint checkpoint = file_of("llama");
    checkpoint.tensor("rope_freqs.weight", {count});
    const auto config = read_config_gguf(checkpoint);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().message,
              fmt::format("tensor rope_freqs.weight is F32 [{}], but must hold 1 to 4096 numbers "
                          "of F32",
                          count));
  }
}

}  // namespace config_gguf_test
}  // namespace headrace
