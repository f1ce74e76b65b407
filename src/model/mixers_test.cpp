// What layers with a state keep, and how far apart its snapshots lie.
#include "model/mixers.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headrace {
namespace {

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

}  // namespace
}  // namespace headrace
