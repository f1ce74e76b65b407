#include "model/cache_groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/config/config_files.h"
#include "model/mixers.h"
#include "model/testing/cache_models.h"
#include "model/testing/fake_checkpoint.h"
#include "model/workspace.h"

namespace headrace {
namespace cache_groups_test {

using testing::alternating;
using testing::keys_and_values;
using testing::reference_backend;

// Types of layers, every fifth of them full.
std::string layers_of_five(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) {
    text += fmt::format("{}\"{}_attention\"", i > 1 ? "," : "", i % 5 == 0 ? "full" : "sliding");
  }
  return text;
}

std::vector<int> columns_of(const CacheLayout& layout) {
  std::vector<int> columns;
  for (const CachePlace& place : layout.places) columns.push_back(place.pieces.at(0).column);
  return columns;
}

TEST(CacheGroups, OneGroupIsOneColumnWithAllLayers) {
  const auto backend = reference_backend();
  CacheGroup group;
  for (int i = 0; i < 30; ++i) group.layers.push_back({i, keys_and_values(KvType::kBF16, 3, 64)});
  const CacheLayout layout = plan_cache({group}, *backend);
  EXPECT_EQ(layout.num_columns, 1);
  EXPECT_EQ(layout.block_bytes, 30 * backend->kv_layer_bytes({KvType::kBF16, 3, 64}));
  EXPECT_EQ(layout.places[29].pieces.at(0).offset,
            29 * backend->kv_layer_bytes({KvType::kBF16, 3, 64}));
  EXPECT_EQ(layout.bytes_for(8192, 512), 512 * layout.block_bytes);
}

// The promise of cache groups: 18 layers, 15 of them with a window of 512, at 8,192 tokens in
// chunks of 512.
TEST(CacheGroups, Gemma3At8kHoldsAThirdOfWhatAllLayersWould) {
  const auto backend = reference_backend();
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8}) {
    const CacheLayout layout = plan_cache(testing::gemma3_270m(type), *backend);
    EXPECT_EQ(layout.num_columns, 6);
    EXPECT_EQ(columns_of(layout),
              (std::vector<int>{0, 0, 0, 1, 1, 5, 1, 2, 2, 2, 3, 5, 3, 3, 4, 4, 4, 5}));
    const size_t layer = backend->kv_layer_bytes({type, 1, 256});
    EXPECT_EQ(layout.block_bytes, 3 * layer);
    const size_t all_layers = 18 * layer * (8192 / kBlockTokens);
    const double prefill = static_cast<double>(layout.bytes_for(8192, 512));
    EXPECT_LE(prefill, 0.28 * static_cast<double>(all_layers));
    const double decode = static_cast<double>(layout.bytes_for(8192, 1));
    EXPECT_LE(decode, 0.23 * static_cast<double>(all_layers));
  }
}

// Gemma 4 E2B: 20 of 35 layers read the keys of earlier ones and keep nothing, so a context of
// 8,192 tokens takes what 12 windows of 512 and 3 full layers with wider heads do.
TEST(CacheGroups, Gemma4E2bKeepsTheKeysOfFifteenLayers) {
  const auto backend = reference_backend();
  const auto config = read_config_json(testing::FakeCheckpoint(R"({
      "model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35,
      "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
      "intermediate_size": 6144, "vocab_size": 262144, "sliding_window": 512,
      "sliding_window_pattern": 5, "num_kv_shared_layers": 20, "use_double_wide_mlp": true,
      "layer_types": [)" + layers_of_five(35) + R"(], "max_position_embeddings": 131072})"));
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto groups = cache_groups_of(*config, KvType::kBF16);
  size_t num_window = 0, num_full = 0, least = 0;
  for (const CacheGroup& group : groups) {
    (group.policy == CachePolicy::kWindow ? num_window : num_full) += group.layers.size();
    const CacheRule rule{group.policy, group.window, 0, 1};
    const auto blocks = static_cast<size_t>(most_blocks({rule}, 8192, 512));
    for (const CacheLayer& layer : group.layers) {
      for (const KvPlane& plane : layer.planes) least += blocks * backend->kv_plane_bytes(plane);
    }
  }
  EXPECT_EQ(num_window, 12u);
  EXPECT_EQ(num_full, 3u);
  const size_t planned = plan_cache(groups, *backend).bytes_for(8192, 512);
  EXPECT_GE(planned, least);
  EXPECT_LE(planned, least * 115 / 100);
  // Of all layers, each with a cache of its own at the wider heads, a tenth.
  const size_t whole = 35 * backend->kv_layer_bytes({KvType::kBF16, 1, 512}) * (8192 / 16);
  EXPECT_LE(planned, whole * 15 / 100);
  // Beside it a step's room: the inputs of all layers are the widest of it.
  ModelOptions options;
  options.max_batch_tokens = 512;
  options.max_logit_rows = 16;
  const size_t room = Workspace::num_bytes(*config, options);
  const size_t inputs = size_t{512} * 35 * 256 * 4;
  EXPECT_GE(room, 2 * inputs);  // made in the room of the MLP, then kept
  EXPECT_LE(room, 5 * inputs);
}

TEST(CacheGroups, CutsWasteLittle) {
  const auto backend = reference_backend();
  const auto planes = keys_and_values(KvType::kBF16, 4, 128);
  const size_t layer = backend->kv_layer_bytes({KvType::kBF16, 4, 128});
  struct Case {
    int num_layers, period;
    int64_t window;
    int most_columns;
  };
  for (const Case& setup : {Case{26, 6, 512, 8}, Case{34, 6, 1024, 8}, Case{48, 6, 1024, 8},
                            Case{62, 6, 1024, 14}, Case{32, 4, 4096, 5}, Case{24, 2, 128, 2}}) {
    const auto groups = alternating(setup.num_layers, setup.period, setup.window, planes);
    const CacheLayout layout = plan_cache(groups, *backend);
    int64_t least = 0;  // layers times blocks, if every layer had a pool of its own
    for (const CacheGroup& group : groups) {
      const CacheRule rule{group.policy, group.window, 0, 1};
      least += std::ssize(group.layers) * most_blocks({rule}, 8192, 1);
    }
    EXPECT_LE(layout.bytes_for(8192, 1), static_cast<size_t>(least) * layer * 108 / 100)
        << setup.num_layers << " layers";
    EXPECT_LE(layout.num_columns, setup.most_columns) << setup.num_layers << " layers";
  }
}

// Layers of unequal shapes in one group, a group of one wide plane, and state.
TEST(CacheGroups, MixedModelsFitTheirBlocks) {
  const auto backend = reference_backend();
  std::vector<CacheGroup> groups(3);
  for (int i = 0; i < 12; ++i) {
    groups[0].layers.push_back({i, keys_and_values(KvType::kBF16, i % 3 == 0 ? 8 : 2, 64)});
  }
  groups[1].policy = CachePolicy::kWindow;
  groups[1].window = 100;
  groups[1].layers = {{12, {{"latent", KvType::kBF16, 1, 576}}}};
  groups[2].policy = CachePolicy::kState;
  groups[2].snapshot_blocks = 4;
  for (int i = 13; i < 19; ++i) {
    groups[2].layers.push_back(
        {i, {{"state", KvType::kF32, 4, 1024}, {"taps", KvType::kF32, 3, 64}}});
  }
  const CacheLayout layout = plan_cache(groups, *backend);
  std::vector<size_t> ends(static_cast<size_t>(layout.num_columns), 0);
  for (const CachePlace& place : layout.places) {
    for (const CachePiece& piece : place.pieces) {
      size_t& end = ends.at(static_cast<size_t>(piece.column));
      EXPECT_EQ(piece.offset, end);
      EXPECT_EQ(piece.offset % 64, 0u);
      for (const KvPlane& plane : piece.planes)
        end += cache_plane_bytes(plane, place.policy, *backend);
      end = (end + 63) / 64 * 64;
      EXPECT_LE(end, layout.block_bytes);
    }
  }
  EXPECT_EQ(*std::max_element(ends.begin(), ends.end()), layout.block_bytes);
  EXPECT_EQ(cache_plane_bytes({"state", KvType::kF32, 4, 1024}, CachePolicy::kState, *backend),
            4u * 1024 * 4);
  int num_columns = 0;
  for (const CacheRule& rule : layout.rules) num_columns += rule.num_columns;
  EXPECT_EQ(num_columns, layout.num_columns);
}

// Three layers of four, with state of 2 MiB in 32 pieces beside keys and values of 32 KiB a block:
// the pieces spread over columns, and a block is not as large as a state.
TEST(CacheGroups, StateInPiecesDoesNotMakeBlocksLarge) {
  const auto backend = reference_backend();
  std::vector<CacheGroup> groups(2);
  groups[1].policy = CachePolicy::kState;
  groups[1].snapshot_blocks = 64;
  for (int i = 0; i < 24; ++i) {
    if (i % 4 == 3) {
      groups[0].layers.push_back({i, keys_and_values(KvType::kBF16, 2, 256)});
      continue;
    }
    groups[1].layers.push_back({i, {{"taps", KvType::kF32, 3, 8192}}});
    for (int head = 0; head < 32; ++head) {
      groups[1].layers.push_back({i, {{"state", KvType::kF32, 1, 128 * 128}}});
    }
  }
  const CacheLayout layout = plan_cache(groups, *backend);
  ASSERT_EQ(layout.places.size(), 24u);
  EXPECT_EQ(layout.places[0].pieces.size(), 33u);
  EXPECT_EQ(layout.places[3].pieces.size(), 1u);
  const size_t attention = 6 * backend->kv_layer_bytes({KvType::kBF16, 2, 256});
  const size_t state = size_t{18} * (3 * 8192 + 32 * 128 * 128) * sizeof(float);
  EXPECT_LE(layout.bytes_for(8192, 1), (attention * 512 + 2 * state) * 108 / 100);
}

// The last three of eight layers read what earlier ones keep: they are in no group, and a context
// takes what it would without them.
TEST(CacheGroups, LayersThatReadOthersKeepNothing) {
  const auto backend = reference_backend();
  ModelConfig config;
  config.max_position_embeddings = 8192;
  LayerConfig layer;
  layer.num_attention_heads = 4;
  layer.num_key_value_heads = 2;
  for (int i = 0; i < 8; ++i) {
    layer.sliding_window = (i + 1) % 3 == 0 ? 0 : 512;
    layer.head_dim = layer.sliding_window > 0 ? 64 : 128;
    layer.kv_source_layer = i < 5 ? -1 : layer.sliding_window > 0 ? 4 : 2;
    config.layers.push_back(layer);
  }
  const auto groups = cache_groups_of(config, KvType::kBF16);
  std::vector<int> kept;
  for (const CacheGroup& group : groups) {
    for (const CacheLayer& each : group.layers) kept.push_back(each.layer_idx);
  }
  std::sort(kept.begin(), kept.end());
  EXPECT_EQ(kept, (std::vector<int>{0, 1, 2, 3, 4}));
  config.layers.resize(5);
  EXPECT_EQ(plan_cache(groups, *backend).bytes_for(8192, 512),
            plan_cache(cache_groups_of(config, KvType::kBF16), *backend).bytes_for(8192, 512));
}

TEST(CacheGroups, MostBlocksOfEachPolicy) {
  const CacheRule full, window{CachePolicy::kWindow, 33, 0, 2}, state{CachePolicy::kState, 0, 4, 3};
  EXPECT_EQ(most_blocks({full}, 1, 8), 1);
  EXPECT_EQ(most_blocks({full}, 17, 8), 2);
  EXPECT_EQ(most_blocks({window}, 17, 8), 2 * 2);    // no more than there are
  EXPECT_EQ(most_blocks({window}, 1000, 1), 2 * 3);  // 33 positions, badly aligned
  EXPECT_EQ(most_blocks({window}, 1000, 8), 2 * 4);
  EXPECT_EQ(most_blocks({state}, 1000, 8), 3 * 2);
  EXPECT_EQ(most_blocks({full, window, state}, 1000, 8), 63 + 2 * 4 + 3 * 2);
}

}  // namespace cache_groups_test
}  // namespace headrace
