// What layers with a state keep, and how far apart its snapshots lie.
#include "model/mixers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/config/config_files.h"
#include "model/testing/cache_models.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace mixers_test {

LayerConfig scan_layer(int num_heads, int head_dim, int state_width) {
  LayerConfig layer;
  layer.mixer = MixerKind::kScan;
  layer.scan = {.num_heads = num_heads,
                .head_dim = head_dim,
                .num_groups = 1,
                .state_width = state_width,
                .num_taps = 4};
  return layer;
}

LayerConfig attention_layer(int kv_heads, int head_dim) {
  LayerConfig layer;
  layer.num_attention_heads = layer.num_key_value_heads = kv_heads;
  layer.head_dim = head_dim;
  return layer;
}

ModelConfig network(std::vector<LayerConfig> layers) {
  ModelConfig config;
  config.hidden_size = 64;
  config.max_position_embeddings = 1 << 20;
  config.layers = std::move(layers);
  return config;
}

const CacheGroup& state_of(const std::vector<CacheGroup>& groups) {
  return *std::find_if(groups.begin(), groups.end(),
                       [](const CacheGroup& group) { return group.policy == CachePolicy::kState; });
}

TEST(CacheGroupsOf, AStateIsAPieceForTheConvolutionAndOneForEachHead) {
  const auto groups =
      cache_groups_of(network({scan_layer(6, 16, 8), attention_layer(2, 16)}), KvType::kF16);
  ASSERT_EQ(groups.size(), 2u);
  const CacheGroup& state = state_of(groups);
  ASSERT_EQ(state.layers.size(), 7u);
  EXPECT_EQ(state.layers[0].planes[0].num_heads, 3);
  EXPECT_EQ(state.layers[0].planes[0].width, 6 * 16 + 2 * 8);
  for (size_t i = 0; i < state.layers.size(); ++i) {
    EXPECT_EQ(state.layers[i].layer_idx, 0);
    EXPECT_EQ(state.layers[i].planes[0].type, KvType::kF32);
    if (i == 0) continue;
    EXPECT_EQ(state.layers[i].planes[0].num_heads, 8);
    EXPECT_EQ(state.layers[i].planes[0].width, 16);
  }
}

TEST(CacheGroupsOf, AShortConvolutionKeepsItsLastInputs) {
  LayerConfig layer;
  layer.mixer = MixerKind::kShortConv;
  layer.short_conv.num_taps = 3;
  const auto groups = cache_groups_of(network({layer}), KvType::kF16);
  ASSERT_EQ(groups.size(), 1u);
  ASSERT_EQ(groups[0].layers.size(), 1u);
  EXPECT_EQ(groups[0].layers[0].planes[0].num_heads, 2);
  EXPECT_EQ(groups[0].layers[0].planes[0].width, 64);
}

// Bytes of the planes of a group in one block, as the back end lays them out.
size_t block_bytes(const CacheGroup& group, const Backend& backend) {
  size_t bytes = 0;
  for (const CacheLayer& layer : group.layers) {
    for (const KvPlane& plane : layer.planes) bytes += backend.kv_plane_bytes(plane);
  }
  return bytes;
}
// A state is written once, whatever a block of positions holds.
size_t state_bytes(const CacheGroup& group) {
  size_t bytes = 0;
  for (const CacheLayer& layer : group.layers) {
    for (const KvPlane& plane : layer.planes) {
      bytes += static_cast<size_t>(plane.num_heads) * static_cast<size_t>(plane.width) * 4;
    }
  }
  return bytes;
}

// Shapes as published: what a prompt of 16,384 tokens keeps of states against what it keeps of
// positions.
TEST(CacheGroupsOf, SnapshotsOfPublishedShapes) {
  struct Shape {
    std::string_view name, keys;
    int64_t blocks;  // between snapshots
  };
  constexpr Shape kShapes[] = {
      {"LFM2 1.2B",
       R"("model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 65536,
          "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12288,
          "full_attn_idxs": [2, 5, 8, 10, 12, 14])",
       32},
      {"LFM2 8B A1B",
       R"("model_type": "lfm2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
          "vocab_size": 65536, "num_attention_heads": 32, "num_key_value_heads": 8,
          "intermediate_size": 7168, "full_attn_idxs": [2, 6, 10, 14, 18, 21])",
       32},
      {"Granite 4.0 H tiny",
       R"("model_type": "granitemoehybrid", "hidden_size": 1536, "num_hidden_layers": 40,
          "vocab_size": 100352, "num_attention_heads": 12, "num_key_value_heads": 4,
          "intermediate_size": 512, "num_local_experts": 64, "num_experts_per_tok": 6,
          "shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_head": 64,
          "mamba_d_state": 128, "mamba_n_groups": 1, "layer_types": [)"
       R"("mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba",)"
       R"("mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba",)"
       R"("mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba",)"
       R"("mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba"])",
       442},
      {"Qwen 3.5 0.8B",
       R"("model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24,
          "vocab_size": 248320, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
          "intermediate_size": 3584, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
          "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4)",
       0},
  };
  const auto backend = testing::reference_backend();
  constexpr int64_t kBlocks = 16384 / kBlockTokens;
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    const auto config =
        read_config_json(testing::FakeCheckpoint(fmt::format("{{{}}}", shape.keys)));
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto groups = cache_groups_of(*config, KvType::kBF16);
    ASSERT_EQ(groups.size(), 2u);
    const CacheGroup& state = state_of(groups);
    const CacheGroup& positions = &state == &groups[0] ? groups[1] : groups[0];
    if (shape.blocks > 0) {
      EXPECT_EQ(state.snapshot_blocks, shape.blocks);
    }
    const double kept = static_cast<double>(state_bytes(state)) * kBlocks /
                        static_cast<double>(state.snapshot_blocks);
    const double of_positions = static_cast<double>(block_bytes(positions, *backend)) * kBlocks;
    EXPECT_LE(kept, 1.01 * of_positions);
    // No farther than that takes, unless they would lie closer than 512 tokens.
    EXPECT_TRUE(kept >= 0.95 * of_positions || state.snapshot_blocks == 32) << kept / of_positions;
  }
}

TEST(CacheGroupsOf, SnapshotsOfAPromptTakeTheMemoryOfItsPositions) {
  const auto blocks = [](std::vector<LayerConfig> layers, KvType type) {
    return state_of(cache_groups_of(network(std::move(layers)), type)).snapshot_blocks;
  };
  // 64 heads of 64 x 128 float32 are 2 MiB, keys and values of 16 positions of 2 heads 16 KiB.
  const LayerConfig scan = scan_layer(64, 64, 128), attention = attention_layer(2, 128);
  EXPECT_EQ(blocks({scan, attention}, KvType::kF16), 131);  // the convolution's inputs are 51 KiB
  EXPECT_EQ(blocks({scan, attention}, KvType::kF32), 65);
  EXPECT_EQ(blocks({scan, scan, attention, attention}, KvType::kF16), 131);
  EXPECT_EQ(blocks({scan_layer(1, 16, 16), attention}, KvType::kF16), 32);    // not closer
  EXPECT_EQ(blocks({scan, scan, scan, scan, attention}, KvType::kFp8), 512);  // nor farther
  EXPECT_EQ(blocks({scan}, KvType::kF16), 512);
}

}  // namespace mixers_test
}  // namespace headrace
