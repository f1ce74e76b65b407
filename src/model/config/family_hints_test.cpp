// What somebody is told whose model this version cannot run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/config/families.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace family_hints_test {

using testing::FakeCheckpoint;

std::string told(std::string_view model_type, const FakeCheckpoint& file) {
  const Error error = unknown_family_error(model_type, file);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported) << model_type;
  return error.message;
}

TEST(FamilyHints, KnownTypesSayWhatTheyNeed) {
  struct Case {
    std::string_view model_type, needs;
  };
  constexpr Case kCases[] = {
      {"llama4", "attention in chunks"},
      {"llama4_text", "attention in chunks"},
      {"bitnet", "norms before the output projections"},
      {"t5", "an encoder"},
      {"mamba", "the selective scan of Mamba 1"},
      {"jamba", "the selective scan of Mamba 1"},
      {"xglm", "sinusoidal positions"},
  };
  const FakeCheckpoint file(CheckpointKind::kSafetensors);
  for (const Case& c : kCases) {
    EXPECT_EQ(told(c.model_type, file),
              fmt::format("a {} model needs {}, which this version does not have", c.model_type,
                          c.needs));
    // One that runs must not be in the list of those that do not.
    EXPECT_EQ(find_family_by_model_type(c.model_type), nullptr) << c.model_type;
  }
}

TEST(FamilyHints, TheNearestNameIsOfATypeOrAnArchitecture) {
  struct Case {
    std::string_view model_type, nearest;
  };
  constexpr Case kCases[] = {
      {"lama", "llama"},       {"qwen33", "qwen3"},      {"mistral2", "mistral"},
      {"olmo22", "olmo2"},     {"gemma3_txt", "gemma3"}, {"gptneox2", "gpt_neox"},
      {"granite4", "granite"}, {"cohere22", "cohere2"},
  };
  const FakeCheckpoint file(CheckpointKind::kSafetensors);
  for (const Case& c : kCases) {
    EXPECT_EQ(told(c.model_type, file),
              fmt::format("the model type '{}' is unknown; the nearest known name is {}",
                          c.model_type, c.nearest));
  }
}

TEST(FamilyHints, EveryFamilyIsListed) {
  const Error error = unknown_family_error("nothing", FakeCheckpoint(CheckpointKind::kGguf));
  ASSERT_TRUE(error.hint.starts_with("supported are "));
  const std::string list = error.hint.substr(13) + ",";
  for (const Family& family : families()) {
    EXPECT_NE(list.find(fmt::format(" {},", family.name)), std::string::npos) << family.name;
  }
}

TEST(FamilyHints, TensorsGiveLayersAway) {
  struct Case {
    std::string_view tensor, feature;
  };
  constexpr Case kCases[] = {
      {"encoder.layers.0.self_attn.q_proj.weight", "an encoder"},
      {"model.encoder.norm.weight", "an encoder"},
      {"decoder.layers.0.cross_attn.q_proj.weight", "cross attention"},
      {"backbone.layers.0.mixer.x_proj.weight", "the selective scan of Mamba 1"},
      {"model.layers.0.mamba.x_proj.weight", "the selective scan of Mamba 1"},
      {"blk.0.ssm_x.weight", "the selective scan of Mamba 1"},
      // The delta rule, the scan of Mamba 2, convolutions and inputs of each layer run.
      {"model.layers.0.linear_attn.A_log", ""},
      {"blk.0.ssm_beta.weight", ""},
      {"backbone.layers.0.mixer.in_proj.weight", ""},
      {"backbone.layers.0.mixer.A_log", ""},
      {"blk.0.ssm_in.weight", ""},
      {"model.layers.0.conv.conv.weight", ""},
      {"blk.0.shortconv.conv.weight", ""},
      {"model.layers.0.per_layer_projection.weight", ""},
      {"model.layers.0.self_attn.q_proj.weight", ""},
      {"", ""},
  };
  for (const Case& c : kCases) EXPECT_EQ(feature_of_tensor(c.tensor), c.feature) << c.tensor;
}

// A feature of many layers is told once.
TEST(FamilyHints, FeaturesAreToldOnce) {
  FakeCheckpoint file(CheckpointKind::kGguf);
  for (int i = 0; i < 3; ++i) {
    file.tensor(fmt::format("blk.{}.cross_attn_q.weight", i), {4, 4});
    file.tensor(fmt::format("blk.{}.cross_attn_k.weight", i), {4, 4});
  }
  const std::string message = told("zzz", file);
  EXPECT_TRUE(
      message.ends_with("; its tensors show cross attention, which this version does not have"))
      << message;
  EXPECT_EQ(message.find("cross"), message.rfind("cross"));
}

TEST(FamilyHints, NormsTellWhatTheLayersAreLike) {
  FakeCheckpoint post(CheckpointKind::kSafetensors);
  post.tensor("model.layers.0.post_attention_layernorm.weight", {8})
      .tensor("model.layers.0.post_feedforward_layernorm.weight", {8})
      .tensor("model.layers.0.self_attn.q_norm.weight", {8});
  EXPECT_NE(told("zzz", post).find("its tensors are named most like olmo2"), std::string::npos)
      << told("zzz", post);
  FakeCheckpoint pre(CheckpointKind::kGguf);
  pre.tensor("blk.0.attn_norm.weight", {8}).tensor("blk.0.ffn_norm.weight", {8});
  EXPECT_NE(told("zzz", pre).find("its tensors are named most like llama"), std::string::npos)
      << told("zzz", pre);
}

}  // namespace family_hints_test
}  // namespace headrace
