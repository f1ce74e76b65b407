#include "model/config/families.h"

#include <gtest/gtest.h>

#include <set>

#include "model/model.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace families_test {

using testing::FakeCheckpoint;

TEST(Families, RowsAreWellFormed) {
  std::set<std::string_view> names, types;
  for (const Family& family : families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    ASSERT_NE(family.block, nullptr);
    for (std::string_view type : family.model_types) {
      if (type.empty()) continue;
      // Rows of the same type say what tells them apart.
      EXPECT_TRUE(types.insert(type).second || !family.form.when[0].key.empty()) << type;
    }
    const BlockForm& block = *family.block;
    for (const NormNames& norms : {block.safetensors, block.gguf}) {
      EXPECT_EQ(!norms[kNormAttention].empty(), block.pre_norms);
      EXPECT_TRUE(norms[kNormMlp].empty() || block.pre_norms);  // or there is no MLP, or one norm
      EXPECT_FALSE(block.parallel && block.post_norms);         // both would need the same room
      EXPECT_EQ(!norms[kNormPostAttention].empty(), block.post_norms);
      EXPECT_EQ(!norms[kNormPostMlp].empty(), block.post_norms);
    }
    EXPECT_EQ(family.window.rule == WindowRule::kPeriod, family.window.period > 0) << family.name;
    EXPECT_EQ(&family_named(family.name), &family);
    if (family.form.when[0].key.empty()) {
      EXPECT_EQ(find_family_by_model_type(family.model_types[0]), &family);
    }
  }
}

TEST(Families, AGgufArchitectureOfSeveralFamiliesGoesByTheWindow) {
  EXPECT_EQ(find_family_by_gguf("llama", false, false)->name, "llama");
  EXPECT_EQ(find_family_by_gguf("llama", true, false)->name, "mistral");
  EXPECT_EQ(find_family_by_gguf("olmo2", false, false)->name, "olmo2");
  EXPECT_EQ(find_family_by_gguf("olmo2", true, false)->name, "olmo3");
  EXPECT_EQ(find_family_by_gguf("qwen2", true, false)->name, "qwen2");
  EXPECT_EQ(find_family_by_gguf("qwen2", false, false)->name, "qwen2");
  EXPECT_EQ(find_family_by_gguf("gemma9", false, false), nullptr);
  EXPECT_EQ(find_family_by_gguf("llama", false, true)->name, "mixtral");
  EXPECT_EQ(find_family_by_gguf("llama", true, true)->name, "mixtral");
  EXPECT_EQ(find_family_by_gguf("granite", false, true)->name, "granite");
}

TEST(Families, AKnownTypeOfALaterVersionSaysWhatItNeeds) {
  const FakeCheckpoint checkpoint(R"({"model_type": "bert"})");
  const auto config = Model::read_config(checkpoint);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(config.error().message,
            "a bert model needs an encoder, which this version does not have");
}

TEST(Families, AnUnknownTypeNamesTheNearestAndWhatTheTensorsShow) {
  FakeCheckpoint checkpoint(R"({"model_type": "qwen4"})");
  checkpoint.tensor("model.layers.0.input_layernorm.weight", {8});
  checkpoint.tensor("model.layers.0.post_attention_layernorm.weight", {8});
  checkpoint.tensor("model.layers.0.self_attn.q_norm.weight", {8});
  checkpoint.tensor("model.layers.0.mlp.experts.0.up_proj.weight", {8, 8});
  checkpoint.tensor("model.layers.0.cross_attn.q_proj.weight", {8, 8});
  checkpoint.tensor("encoder.norm.weight", {8});
  const auto config = Model::read_config(checkpoint);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(config.error().message,
            "the model type 'qwen4' is unknown; the nearest known name is qwen2, and its tensors "
            "are named most like qwen3; its tensors show cross attention and an encoder, "
            "which this version does not have");
  EXPECT_NE(config.error().hint.find("smollm3"), std::string::npos);
}

}  // namespace families_test
}  // namespace headrace
