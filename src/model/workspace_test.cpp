#include "model/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"

namespace headrace {
namespace workspace_test {

ModelConfig config_of(int num_ropes) {
  ModelConfig config;
  config.hidden_size = 48;
  for (const int heads : {4, 6}) {
    LayerConfig layer;
    layer.num_attention_heads = heads;
    layer.num_key_value_heads = 2;
    layer.head_dim = 16;
    layer.intermediate_size = 100 - heads;
    config.layers.push_back(layer);
  }
  for (int i = 0; i < num_ropes; ++i) {
    RopeConfig rope;
    rope.rope_dims = 16 - 4 * i;
    config.ropes.push_back(rope);
  }
  return config;
}

std::vector<float> slopes_of(int heads, float max_bias, float scale) {
  ModelConfig config = config_of(0);
  for (LayerConfig& layer : config.layers) layer.num_attention_heads = heads;
  config.alibi_max_bias = max_bias;
  config.alibi_scale = scale;
  auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1});
  const auto workspace = Workspace::create(config, {}, **backend);
  EXPECT_TRUE(workspace.ok());
  std::vector<float> slopes(static_cast<size_t>(heads));
  (*backend)->download(workspace->alibi_slopes, std::span(slopes));
  return slopes;
}

TEST(Workspace, SlopesFallByPowersOfTwo) {
  EXPECT_EQ(slopes_of(4, 8, 1), (std::vector<float>{0.25f, 0.0625f, 0x1p-6f, 0x1p-8f}));
  EXPECT_EQ(slopes_of(2, 4, 0.5f), (std::vector<float>{0.125f, 0.03125f}));
  // Six heads: the four of the power below, then every second of the eight of the power above.
  EXPECT_EQ(slopes_of(6, 8, 1),
            (std::vector<float>{0.25f, 0.0625f, 0x1p-6f, 0x1p-8f, 0.5f, 0.125f}));
}

TEST(Workspace, WithoutSlopesThereIsNoRoomForThem) {
  auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1});
  const auto workspace = Workspace::create(config_of(0), {}, **backend);
  ASSERT_TRUE(workspace.ok());
  EXPECT_FALSE(workspace->alibi_slopes);
}

struct Piece {
  DevicePtr<float> start;
  int64_t size;
};

std::vector<Piece> pieces_of(const Workspace& workspace, int64_t rows, int64_t logit_rows) {
  std::vector<Piece> pieces = {{workspace.hidden, rows * 48},
                               {workspace.normed, rows * 48},
                               {workspace.branch, rows * 48},
                               {workspace.qkv, rows * (6 + 4) * 16},
                               {workspace.q, rows * 6 * 16},
                               {workspace.attended, rows * 6 * 16},
                               {workspace.mlp, rows * 96},
                               {workspace.q_row_scale, rows},
                               {workspace.logit_rows, logit_rows * 48}};
  const int64_t halves[] = {8, 6};
  for (size_t i = 0; i < workspace.ropes.size(); ++i) {
    pieces.push_back({workspace.ropes[i].cos, rows * halves[i]});
    pieces.push_back({workspace.ropes[i].sin, rows * halves[i]});
  }
  return pieces;
}

TEST(Workspace, HasRoomForTheWidestLayerInPiecesApart) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  for (const int num_ropes : {0, 1, 2}) {
    const ModelConfig config = config_of(num_ropes);
    const ModelOptions options = {.max_batch_tokens = 7, .max_logit_rows = 3};
    const auto workspace = Workspace::create(config, options, *backend);
    ASSERT_TRUE(workspace.ok());
    ASSERT_EQ(std::ssize(workspace->ropes), num_ropes);
    std::vector<Piece> pieces = pieces_of(*workspace, 7, 3);
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.start - b.start < 0; });
    const DevicePtr<float> first = pieces.front().start;
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ((pieces[i].start - first) % 16, 0) << "not at 64 bytes: " << i;
      const int64_t before = i == 0 ? 0 : pieces[i].start - pieces[i - 1].start;
      EXPECT_GE(before, i == 0 ? 0 : pieces[i - 1].size) << i;
    }
    const int64_t end = pieces.back().start - first + pieces.back().size;
    EXPECT_LE(end * int64_t{sizeof(float)},
              static_cast<int64_t>(Workspace::num_bytes(config, options)));
    // Somebody can write the last float of the last piece.
    backend->upload(std::vector<float>{1}, first + (end - 1));
  }
}

TEST(Workspace, HostTablesFitTheLargestStep) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  ModelConfig config = config_of(2);
  const ModelOptions options = {.max_batch_tokens = 7, .max_logit_rows = 3};
  const auto plain = Workspace::create(config, options, *backend).value();
  EXPECT_EQ(plain.positions.size(), 7u);
  EXPECT_EQ(plain.frequencies.size(), 8u);
  EXPECT_TRUE(plain.query_scales.empty());
  config.query_position_beta = 0.1f;
  EXPECT_EQ(Workspace::create(config, options, *backend).value().query_scales.size(), 7u);
}

TEST(Workspace, GrowsWithTheBatch) {
  const ModelConfig config = config_of(1);
  const size_t small = Workspace::num_bytes(config, {.max_batch_tokens = 16});
  const size_t large = Workspace::num_bytes(config, {.max_batch_tokens = 32});
  const size_t logits =
      Workspace::num_bytes(config, {.max_batch_tokens = 16, .max_logit_rows = 65});
  EXPECT_GT(large, small);
  EXPECT_EQ(logits - small, 48 * sizeof(float));
}

TEST(Workspace, SizesThatCannotBeAreRefused) {
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const struct {
    int tokens, rows;
  } cases[] = {{0, 1}, {1, 0}, {-5, 4}, {1'000'001, 1}, {1, 1'000'001}};
  for (const auto& row : cases) {
    const auto workspace = Workspace::create(
        config_of(1), {.max_batch_tokens = row.tokens, .max_logit_rows = row.rows}, *backend);
    ASSERT_FALSE(workspace.ok());
    EXPECT_EQ(workspace.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(workspace.error().message,
              fmt::format("a batch of {} tokens with {} rows of logits was asked for, but both "
                          "must be between 1 and 1000000",
                          row.tokens, row.rows));
  }
}

}  // namespace workspace_test
}  // namespace headrace
