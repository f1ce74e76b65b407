// What is told of networks whose layers differ.
#include "cli/inspect_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/testing/golden.h"
#include "cli/testing/program.h"
#include "model/model.h"

namespace headrace {
namespace inspect_model_test {

ModelConfig mixed_config() {
  ModelConfig config;
  config.family = "mixed";
  config.hidden_size = 64;
  config.layers.resize(3);
  for (LayerConfig& layer : config.layers) {
    layer.num_attention_heads = 4;
    layer.num_key_value_heads = 2;
    layer.head_dim = 16;
    layer.intermediate_size = 96;
  }
  config.layers[0].sliding_window = 8;
  config.layers[1].head_dim = 32;
  config.layers[2].mlp = MlpKind::kExperts;
  config.layers[2].intermediate_size = 0;
  config.layers[2].experts.num_experts = 8;
  config.layers[2].experts.num_experts_per_token = 2;
  config.layers[2].experts.intermediate_size = 24;
  return config;
}

TEST(InspectModel, LayersAreCountedByTheirKinds) {
  const boost::json::object found = describe_config(mixed_config());
  EXPECT_EQ(found.at("mixers").at(mixer_row(MixerKind::kAttention).name), 3);
  EXPECT_EQ(found.at("mlps").at(mlp_row(MlpKind::kDense).name), 2);
  EXPECT_EQ(found.at("mlps").at(mlp_row(MlpKind::kExperts).name), 1);
  EXPECT_EQ(found.at("sliding_layers"), 1);
}

TEST(InspectModel, SizesThatDifferAreAllTold) {
  const boost::json::object found = describe_config(mixed_config());
  EXPECT_EQ(found.at("head_dim"), (boost::json::array{16, 32}));
  EXPECT_EQ(found.at("num_attention_heads"), 4);
  EXPECT_EQ(found.at("intermediate_size"), 96);
  EXPECT_EQ(found.at("experts").at("num_experts"), 8);
  EXPECT_EQ(found.at("experts").at("num_experts_per_token"), 2);
}

TEST(InspectModel, ADenseNetworkHasNoExperts) {
  ModelConfig config = mixed_config();
  config.layers.pop_back();
  EXPECT_FALSE(describe_config(config).contains("experts"));
}

FoundRole role_of(Role role, int layer, int64_t outputs, int64_t inputs, int64_t count) {
  FoundRole found;
  found.role = role;
  found.layer = layer;
  found.pack = {role_row(role).pack, count};
  WeightView view;
  view.num_outputs = outputs;
  view.num_inputs = inputs;
  found.parts.assign(static_cast<size_t>(count), view);
  return found;
}

TEST(InspectModel, ATokenMeetsItsExpertsAndNotTheRowsOfOthers) {
  FoundWeights found;
  found.roles.push_back(role_of(Role::kEmbedding, kNoLayer, 1000, 64, 1));
  found.roles.push_back(role_of(Role::kRouter, 2, 8, 64, 1));
  found.roles.push_back(role_of(Role::kExpertDown, 2, 64, 24, 8));
  EXPECT_EQ(active_parameters(mixed_config(), found), 1000 * 64 + 8 * 64 + 2 * 64 * 24);
  found.roles.push_back(role_of(Role::kHead, kNoLayer, 1000, 64, 1));
  EXPECT_EQ(active_parameters(mixed_config(), found), 1000 * 64 + 8 * 64 + 2 * 64 * 24)
      << "the head in place of the embedding";
}

// They are stacks, as experts are.
TEST(InspectModel, ATokenMeetsAllHeadsAndStreams) {
  FoundWeights found;
  found.roles.push_back(role_of(Role::kKeyUp, 0, 32, 16, 4));    // beside a dense MLP
  found.roles.push_back(role_of(Role::kValueUp, 2, 16, 32, 4));  // and beside experts
  found.roles.push_back(role_of(Role::kStreamIn, kNoLayer, 64, 64, 3));
  EXPECT_EQ(active_parameters(mixed_config(), found), 2 * 4 * 32 * 16 + 3 * 64 * 64);
}

// The repository's small checkpoints, one or more of each family.
std::vector<std::filesystem::path> tiny_folders() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(test::archive_root() / "tiny")) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

TEST(InspectModel, EveryFamilyIsShown) {
  int num_shown = 0;
  for (const std::filesystem::path& folder : tiny_folders()) {
    SCOPED_TRACE(folder);
    const testing::Outcome outcome =
        testing::run_program("inspect --json '" + folder.string() + "'");
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    boost::system::error_code error;
    const size_t begin = std::min(outcome.text.find('{'), outcome.text.size());  // after warnings
    const boost::json::value report = boost::json::parse(outcome.text.substr(begin), error);
    ASSERT_FALSE(error) << outcome.text;
    const auto elements = report.at("file").at("elements").to_number<int64_t>();
    const auto active = report.at("model").at("active_parameters").to_number<int64_t>();
    EXPECT_GT(active, 0);
    EXPECT_LE(active, elements);
    ++num_shown;
  }
  EXPECT_GE(num_shown, 90);
}

// What a token meets of a network, counted by the names of its tensors: all but the embedding,
// beside which there is a head, and the experts that it is not sent to.
int64_t met_by_name(const Checkpoint& checkpoint, const ExpertConfig& experts) {
  int64_t met = 0;
  for (const std::string& name : checkpoint.names()) {
    if (name.find("embed_tokens") != std::string::npos) continue;
    const bool is_routed = name.find(".experts.") != std::string::npos;
    const int64_t elements = checkpoint.find(name)->num_elements();
    met += is_routed ? elements * experts.num_experts_per_token / experts.num_experts : elements;
  }
  return met;
}

TEST(InspectModel, LatentAttentionIsMetWhole) {
  int num_checked = 0;
  for (const std::filesystem::path& folder : tiny_folders()) {
    const auto checkpoint = Checkpoint::open(folder.string()).value();
    const ModelConfig config = Model::read_config(*checkpoint).value();
    const LayerConfig& last = config.layers.back();
    if (last.mixer != MixerKind::kLatent || last.experts.num_experts == 0) continue;
    SCOPED_TRACE(folder);
    ASSERT_FALSE(config.tie_word_embeddings);
    const FoundWeights found = find_weights(*checkpoint, config).value();
    EXPECT_EQ(active_parameters(config, found), met_by_name(*checkpoint, last.experts));
    ++num_checked;
  }
  EXPECT_GE(num_checked, 5);
}

TEST(InspectModel, StateDoesNotGrowWithTheContext) {
  const auto backend = create_cpu_backend({"reference", 1}).value();
  const CacheGroup full{{{0, {{"keys", KvType::kF32, 2, 16}}}}};
  const CacheGroup state{{{1, {{"state", KvType::kF32, 4, 8}}}}, CachePolicy::kState, 0, 64};
  const CacheLayout layout = plan_cache({full, state}, *backend);
  EXPECT_EQ(state_bytes_of_sequence(layout, *backend), 4u * 8 * sizeof(float));
  EXPECT_GT(kv_bytes_of_token(layout), 0u);
  EXPECT_EQ(state_bytes_of_sequence(plan_cache({full}, *backend), *backend), 0u);
}

}  // namespace inspect_model_test
}  // namespace headrace
