#include "verify/golden.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace {
namespace golden_test {

namespace fs = std::filesystem;

// A folder that goes away with the test.
class GoldenFolder : public ::testing::Test {
 protected:
  GoldenFolder()
      : path_(fs::temp_directory_path() / ("headrace-verify-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~GoldenFolder() override {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void write(const char* name, const std::string& text) { std::ofstream(path_ / name) << text; }
  Error error() {
    const auto golden = read_golden(path_.string());
    EXPECT_FALSE(golden.ok());
    return golden.ok() ? Error{} : golden.error();
  }

  fs::path path_;
};

TEST_F(GoldenFolder, GreedyIdsAloneAreEnough) {
  write("expect.json",
        R"({"prompts": [{"ids": [1, 2, 3], "greedy": [4]}, {"ids": [5], "greedy": [6]}]})");
  const auto golden = read_golden(path_.string());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  ASSERT_EQ(golden->prompts.size(), 2u);
  EXPECT_EQ(golden->prompts[0].ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(golden->prompts[1].greedy, (std::vector<int32_t>{6}));
  EXPECT_TRUE(golden->prompts[0].logits.empty());
}

TEST_F(GoldenFolder, WhatIsMissingOrWrongIsNamed) {
  EXPECT_EQ(error().code, ErrorCode::kNotFound);
  write("expect.json", "{");
  EXPECT_EQ(error().code, ErrorCode::kCorrupt);
  write("expect.json", "{}");
  EXPECT_NE(error().message.find("no list of prompts"), std::string::npos);
  write("expect.json", R"({"prompts": []})");
  EXPECT_NE(error().message.find("no list of prompts"), std::string::npos);
  write("expect.json", R"({"prompts": [7]})");
  EXPECT_NE(error().message.find("prompt 0 is not an object"), std::string::npos);
  write("expect.json", R"({"prompts": [{"greedy": [1]}]})");
  EXPECT_NE(error().message.find("prompt 0 has no ids"), std::string::npos);
  write("expect.json", R"({"prompts": [{"ids": [1]}]})");
  EXPECT_NE(error().message.find("nothing is recorded for prompt 0"), std::string::npos);
  write("expect.json", R"({"prompts": [{"ids": [-1], "greedy": [1]}]})");
  EXPECT_NE(error().message.find("ids holds -1"), std::string::npos);
  write("expect.json", R"({"prompts": [{"ids": ["a"], "greedy": [1]}]})");
  EXPECT_EQ(error().code, ErrorCode::kInvalidArgument);
}

TEST_F(GoldenFolder, AnAdapterNamesItsCheckpoint) {
  write("expect.json", R"({"base": "nowhere", "prompts": [{"ids": [1], "greedy": [4]}]})");
  write("adapter_config.json", "{}");
  EXPECT_NE(error().message.find("'nowhere'"), std::string::npos);
  fs::create_directories(path_ / "nested");
  for (const char* name : {"expect.json", "adapter_config.json"}) {
    fs::rename(path_ / name, path_ / "nested" / name);
  }
  fs::create_directories(path_ / "nowhere");
  const auto golden = read_golden((path_ / "nested").string());
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  EXPECT_EQ(golden->base, (path_ / "nowhere").string());
}

}  // namespace golden_test
}  // namespace headrace
