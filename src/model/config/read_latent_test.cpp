#include "model/config/read_latent.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/config/check_config.h"
#include "model/config/roles.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_latent_test {

constexpr LatentRow kPlain = {};
constexpr LatentRow kIndexed = {.indexed = true};

LatentConfig from_json(const char* text, const LatentRow& row) {
  const boost::json::value value = boost::json::parse(text);
  const auto latent = read_latent_json(JsonObject(value.get_object()), row);
  EXPECT_TRUE(latent.ok()) << (latent.ok() ? "" : latent.error().message);
  return latent.ok() ? *latent : LatentConfig{};
}

TEST(ReadLatent, WidthsOfConfigJson) {
  const LatentConfig latent = from_json(
      R"({"q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
          "v_head_dim": 12, "index_topk": 9})",
      kPlain);
  EXPECT_EQ(latent.q_lora_rank, 32);
  EXPECT_EQ(latent.width(), 32);
  EXPECT_EQ(latent.qk_head_dim(), 24);
  EXPECT_EQ(latent.v_head_dim, 12);
  EXPECT_EQ(latent.index_n_heads, 0) << "the family has no index";
}

TEST(ReadLatent, AnAbsentRankIsTheFamilysAndNullIsNone) {
  EXPECT_EQ(from_json("{}", kPlain).q_lora_rank, 1536);
  EXPECT_EQ(from_json("{}", kPlain).kv_lora_rank, 512);
  EXPECT_EQ(from_json(R"({"q_lora_rank": null})", kPlain).q_lora_rank, 0);
  EXPECT_EQ(from_json("{}", LatentRow{.q_lora_rank = 0}).q_lora_rank, 0);
}

TEST(ReadLatent, AnIndexHasItsOwnWidths) {
  const LatentConfig latent =
      from_json(R"({"index_n_heads": 4, "index_head_dim": 20, "index_topk": 9})", kIndexed);
  EXPECT_EQ(latent.index_n_heads, 4);
  EXPECT_EQ(latent.index_head_dim, 20);
  EXPECT_EQ(latent.index_topk, 9);
}

testing::FakeCheckpoint gguf() {
  testing::FakeCheckpoint file(CheckpointKind::kGguf);
  file.key("deepseek2.attention.kv_lora_rank", int64_t{24})
      .key("deepseek2.rope.dimension_count", int64_t{8})
      .key("deepseek2.attention.key_length", int64_t{32})
      .key("deepseek2.attention.value_length", int64_t{24});
  return file;
}

TEST(ReadLatent, GgufFilesOfBothGenerations) {
  // Older files keep the widths of a head where newer ones have those of the cached vector.
  testing::FakeCheckpoint file = gguf();
  const GgufKeys keys(file.metadata(), "deepseek2");
  EXPECT_EQ(read_latent_gguf(keys, kPlain)->qk_nope_head_dim, 24);
  EXPECT_EQ(read_latent_gguf(keys, kPlain)->v_head_dim, 24);
  EXPECT_EQ(read_latent_gguf(keys, kPlain)->q_lora_rank, 0);
  file.key("deepseek2.attention.key_length_mla", int64_t{20})
      .key("deepseek2.attention.value_length_mla", int64_t{14})
      .key("deepseek2.attention.q_lora_rank", int64_t{30});
  const LatentConfig latent = *read_latent_gguf(keys, kPlain);
  EXPECT_EQ(latent.qk_nope_head_dim, 12);
  EXPECT_EQ(latent.qk_rope_head_dim, 8);
  EXPECT_EQ(latent.v_head_dim, 14);
  EXPECT_EQ(latent.q_lora_rank, 30);
}

TEST(ReadLatent, AGgufFileWithoutAnIndexIsRefusedWhereThereMustBeOne) {
  const testing::FakeCheckpoint file = gguf();
  const auto latent = read_latent_gguf(GgufKeys(file.metadata(), "deepseek2"), kIndexed);
  ASSERT_FALSE(latent.ok());
  EXPECT_NE(latent.error().message.find("indexer.head_count"), std::string::npos);
}

TEST(ReadLatent, AbsurdGgufWidthsAreRefused) {
  for (const int64_t width : {int64_t{-1}, int64_t{1} << 40}) {
    testing::FakeCheckpoint file = gguf();
    file.key("deepseek2.attention.q_lora_rank", width);
    EXPECT_FALSE(read_latent_gguf(GgufKeys(file.metadata(), "deepseek2"), kPlain).ok());
  }
}

ModelConfig latent_network() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 64;
  config.hidden_size = 32;
  config.max_position_embeddings = 128;
  config.layers.resize(2);
  for (LayerConfig& layer : config.layers) {
    layer.num_attention_heads = 4;
    layer.num_key_value_heads = 4;
    layer.head_dim = 8;
    layer.intermediate_size = 48;
    layer.rope_idx = 0;
    set_latent(
        {.kv_lora_rank = 24, .qk_nope_head_dim = 16, .qk_rope_head_dim = 8, .v_head_dim = 16},
        &layer);
  }
  config.ropes.resize(1);
  config.ropes[0].rope_dims = 8;
  return config;
}

TEST(Latent, ScaleGrowsWithYarnWhereALayerHasARope) {
  ModelConfig config = latent_network();
  const double plain = 1 / std::sqrt(24.0);
  set_latent_scales(&config);
  EXPECT_FLOAT_EQ(config.layers[0].attention_scale, static_cast<float>(plain));
  config.ropes[0].factor = 4;
  config.ropes[0].mscale_all_dim = 0.8;
  set_latent_scales(&config);
  EXPECT_FLOAT_EQ(config.layers[0].attention_scale, static_cast<float>(plain))
      << "the default rope has no factor";
  config.ropes[0].type = RopeType::kYarn;
  config.layers[1].rope_idx = -1;
  set_latent_scales(&config);
  const double mscale = 0.08 * std::log(4.0) + 1;
  EXPECT_FLOAT_EQ(config.layers[0].attention_scale, static_cast<float>(plain * mscale * mscale));
  EXPECT_FLOAT_EQ(config.layers[1].attention_scale, static_cast<float>(plain));
}

TEST(Latent, WidthsAreBounded) {
  EXPECT_TRUE(check_config(latent_network()).ok());
  struct Case {
    int LatentConfig::* field;
    int value;
  };
  constexpr Case kCases[] = {
      {&LatentConfig::kv_lora_rank, 0},      {&LatentConfig::kv_lora_rank, 1020},
      {&LatentConfig::qk_nope_head_dim, -8}, {&LatentConfig::qk_nope_head_dim, 100'000},
      {&LatentConfig::v_head_dim, 0},        {&LatentConfig::q_lora_rank, 1'000'000},
      {&LatentConfig::index_n_heads, 4},  // without a width
  };
  for (const Case& bad : kCases) {
    ModelConfig config = latent_network();
    config.layers[1].latent.*bad.field = bad.value;
    EXPECT_FALSE(check_config(config).ok()) << bad.value;
  }
  ModelConfig wide = latent_network();
  wide.ropes[0].rope_dims = 10;
  EXPECT_FALSE(check_config(wide).ok()) << "more is rotated than the shared key has";
}

TEST(Latent, ValuesOfOtherMixersAreRefused) {
  ModelConfig config = latent_network();
  config.layers[0].sliding_window = 16;
  EXPECT_FALSE(check_config(config).ok());
  config = latent_network();
  config.layers[0].head_dim = 8;
  EXPECT_FALSE(check_config(config).ok());
  config = latent_network();
  config.layers[0].mixer = MixerKind::kAttention;
  config.layers[0].num_key_value_heads = 4;
  config.layers[0].head_dim = 8;
  EXPECT_FALSE(check_config(config).ok()) << "attention does not heed latent widths";
}

TEST(Latent, RoomHoldsEveryArrayApart) {
  LayerConfig layer = latent_network().layers[0];
  layer.latent.q_lora_rank = 30;
  layer.latent.index_n_heads = 3;
  layer.latent.index_head_dim = 20;
  layer.latent.index_topk = 7;
  const LatentRoom room(layer, 5);
  const int64_t starts[] = {room.query_rank,     room.queries,       room.keys,
                            room.latent_queries, room.latent_values, room.values,
                            room.index_queries,  room.index_keys,    room.index_weights,
                            room.kept,           room.num_floats};
  const int64_t sizes[] = {5 * 30,     5 * 4 * 24, 5 * 32, 5 * 4 * 32, 5 * 4 * 24,
                           5 * 4 * 16, 5 * 60,     5 * 20, 15,         5 * kept_words(7)};
  for (size_t i = 0; i < std::size(sizes); ++i) {
    EXPECT_EQ(starts[i] % 16, 0);
    EXPECT_GE(starts[i + 1] - starts[i], sizes[i]) << "array " << i;
  }
}

}  // namespace read_latent_test
}  // namespace headrace
