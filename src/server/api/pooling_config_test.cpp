#include "server/api/pooling_config.h"

#include <gtest/gtest.h>

#include <map>

namespace headrace {
namespace pooling_config_test {

class FilesCheckpoint : public Checkpoint {
 public:
  CheckpointKind kind() const override { return kind_; }
  const std::string& path() const override { return path_; }
  std::span<const std::string> names() const override { return {}; }
  const TensorView* find(std::string_view) const override { return nullptr; }
  size_t file_bytes() const override { return 0; }
  const Metadata& metadata() const override { return metadata_; }
  std::optional<std::string> sidecar(std::string_view name) const override {
    const auto found = files.find(name);
    return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
  }
  std::string fingerprint() const override { return ""; }
  void release_pages() const override {}

  std::map<std::string, std::string, std::less<>> files;
  Metadata metadata_;
  CheckpointKind kind_ = CheckpointKind::kSafetensors;
  std::string path_ = "models/some-decoder";
};

constexpr const char* kModules = R"([
  {"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
  {"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
  {"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";

TEST(PoolingConfig, ADecoderThatSaysNothingHasTheLast) {
  const auto config = PoolingConfig::read(FilesCheckpoint()).value();
  EXPECT_EQ(config.pooling, Pooling::kLast);
  EXPECT_FALSE(config.is_embedding);
  EXPECT_FALSE(config.is_reranker);
  EXPECT_EQ(config.unsupported, "");
}

TEST(PoolingConfig, SwitchesOfThePoolingModuleCount) {
  FilesCheckpoint checkpoint;
  checkpoint.files["modules.json"] = kModules;
  for (const auto& [name, pooling] : {std::pair{"pooling_mode_cls_token", Pooling::kFirst},
                                      std::pair{"pooling_mode_mean_tokens", Pooling::kMean},
                                      std::pair{"pooling_mode_lasttoken", Pooling::kLast}}) {
    checkpoint.files["1_Pooling/config.json"] = fmt::format(
        R"({{"word_embedding_dimension":8,"pooling_mode_max_tokens":false,"{}":true}})", name);
    const auto config = PoolingConfig::read(checkpoint).value();
    EXPECT_EQ(config.pooling, pooling) << name;
    EXPECT_TRUE(config.is_embedding);
    EXPECT_EQ(config.unsupported, "");
  }
  checkpoint.files["1_Pooling/config.json"] = R"({"pooling_mode":"mean"})";
  EXPECT_EQ(PoolingConfig::read(checkpoint)->pooling, Pooling::kMean);
}

TEST(PoolingConfig, WhatCannotBeDoneIsNamed) {
  FilesCheckpoint checkpoint;
  checkpoint.files["modules.json"] = kModules;
  checkpoint.files["1_Pooling/config.json"] = R"({"pooling_mode_weightedmean_tokens":true})";
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "pooling_mode_weightedmean_tokens");
  checkpoint.files["1_Pooling/config.json"] = R"({"pooling_mode":"max"})";
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "pooling_mode max");
  checkpoint.files["1_Pooling/config.json"] =
      R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true})";
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "several poolings that are joined");
  checkpoint.files["modules.json"] =
      R"([{"path":"","type":"sentence_transformers.models.Transformer"},
          {"path":"2_Dense","type":"sentence_transformers.models.Dense"}])";
  EXPECT_EQ(PoolingConfig::read(checkpoint)->unsupported, "the module Dense");
}

TEST(PoolingConfig, BrokenFilesAreNamed) {
  FilesCheckpoint checkpoint;
  checkpoint.files["modules.json"] = "[{";
  EXPECT_NE(PoolingConfig::read(checkpoint).error().message.find("modules.json"),
            std::string::npos);
  checkpoint.files["modules.json"] = R"({"a":1})";
  EXPECT_EQ(PoolingConfig::read(checkpoint).error().code, ErrorCode::kCorrupt);
  checkpoint.files["modules.json"] = R"([1,"x",{"type":7},{"type":"Pooling","path":7}])";
  EXPECT_FALSE(PoolingConfig::read(checkpoint)->unsupported.empty());
  checkpoint.files["modules.json"] = kModules;
  checkpoint.files["1_Pooling/config.json"] = "nonsense";
  EXPECT_NE(PoolingConfig::read(checkpoint).error().message.find("1_Pooling/config.json"),
            std::string::npos);
}

TEST(PoolingConfig, RerankersAreKnownByTheirName) {
  FilesCheckpoint checkpoint;
  checkpoint.path_ = "models/Qwen3-Reranker-0.6B/";
  EXPECT_TRUE(PoolingConfig::read(checkpoint)->is_reranker);
  checkpoint.path_ = "reranked/some-decoder";
  EXPECT_FALSE(PoolingConfig::read(checkpoint)->is_reranker);
}

TEST(PoolingConfig, NamesAreThoseOfTheOption) {
  EXPECT_EQ(pooling_of_name("mean"), Pooling::kMean);
  EXPECT_EQ(pooling_of_name("cls"), Pooling::kFirst);
  EXPECT_EQ(pooling_of_name("max"), std::nullopt);
}

}  // namespace pooling_config_test
}  // namespace headrace
