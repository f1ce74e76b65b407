#include "server/api/pooling_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/api/test_checkpoint.h"

namespace headrace {
namespace pooling_config_test {

using test::TextCheckpoint;

TextCheckpoint bare_checkpoint() { return TextCheckpoint(CheckpointKind::kSafetensors); }

constexpr const char* kModules = R"([
  {"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
  {"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
  {"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";

TEST(PoolingConfig, ADecoderThatSaysNothingHasTheLast) {
  const auto config = PoolingConfig::read(bare_checkpoint()).value();
  EXPECT_EQ(config.pooling, Pooling::kLast);
  EXPECT_FALSE(config.is_embedding);
  EXPECT_FALSE(config.is_reranker);
  EXPECT_EQ(config.unsupported, "");
}

TEST(PoolingConfig, SwitchesOfThePoolingModuleCount) {
  TextCheckpoint checkpoint = bare_checkpoint();
  checkpoint.file("modules.json", kModules);
  for (const auto& [name, pooling] : {std::pair{"pooling_mode_cls_token", Pooling::kFirst},
                                      std::pair{"pooling_mode_mean_tokens", Pooling::kMean},
                                      std::pair{"pooling_mode_lasttoken", Pooling::kLast}}) {
    checkpoint.file(
        "1_Pooling/config.json",
        fmt::format(R"({{"word_embedding_dimension":8,"pooling_mode_max_tokens":false,"{}":true}})",
                    name));
    const auto config = PoolingConfig::read(checkpoint).value();
    EXPECT_EQ(config.pooling, pooling) << name;
    EXPECT_TRUE(config.is_embedding);
    EXPECT_EQ(config.unsupported, "");
  }
  checkpoint.file("1_Pooling/config.json", R"({"pooling_mode":"mean"})");
  EXPECT_EQ(PoolingConfig::read(checkpoint)->pooling, Pooling::kMean);
}

TEST(PoolingConfig, WhatCannotBeDoneIsNamed) {
  TextCheckpoint checkpoint = bare_checkpoint();
  checkpoint.file("modules.json", kModules);
  checkpoint.file("1_Pooling/config.json", R"({"pooling_mode_weightedmean_tokens":true})");
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "pooling_mode_weightedmean_tokens");
  checkpoint.file("1_Pooling/config.json", R"({"pooling_mode":"max"})");
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "pooling_mode max");
  checkpoint.file("1_Pooling/config.json",
                  R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true})");
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "several poolings that are joined");
  checkpoint.file("modules.json", R"([{"path":"","type":"sentence_transformers.models.Transformer"},
          {"path":"2_Dense","type":"sentence_transformers.models.Dense"}])");
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "the module Dense");
}

TEST(PoolingConfig, BrokenFilesAreNamed) {
  TextCheckpoint checkpoint = bare_checkpoint();
  checkpoint.file("modules.json", "[{");
  EXPECT_NE(PoolingConfig::read(checkpoint).error().message.find("modules.json"),
            std::string::npos);
  checkpoint.file("modules.json", R"({"a":1})");
  EXPECT_EQ(PoolingConfig::read(checkpoint).error().code, ErrorCode::kCorrupt);
  checkpoint.file("modules.json", R"([1,"x",{"type":7},{"type":"Pooling","path":7}])");
  EXPECT_FALSE(PoolingConfig::read(checkpoint)->unsupported.empty());
  checkpoint.file("modules.json", kModules);
  checkpoint.file("1_Pooling/config.json", "nonsense");
  EXPECT_NE(PoolingConfig::read(checkpoint).error().message.find("1_Pooling/config.json"),
            std::string::npos);
}

TEST(PoolingConfig, RerankersAreKnownByTheirName) {
  TextCheckpoint checkpoint = bare_checkpoint();
  checkpoint.at("models/Qwen3-Reranker-0.6B/");
  EXPECT_TRUE(PoolingConfig::read(checkpoint)->is_reranker);
  checkpoint.at("reranked/some-decoder");
  EXPECT_FALSE(PoolingConfig::read(checkpoint)->is_reranker);
}

TEST(PoolingConfig, NamesAreThoseOfTheOption) {
  EXPECT_EQ(pooling_of_name("mean"), Pooling::kMean);
  EXPECT_EQ(pooling_of_name("cls"), Pooling::kFirst);
  EXPECT_EQ(pooling_of_name("max"), std::nullopt);
}

}  // namespace pooling_config_test
}  // namespace headrace
