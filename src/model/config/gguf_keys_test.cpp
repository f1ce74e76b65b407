#include "model/config/gguf_keys.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace headrace {
namespace gguf_keys_test {

using Array = MetadataValue::Array;
using Whole = std::vector<int64_t>;

class GgufKeysTest : public ::testing::Test {
 protected:
  GgufKeysTest() {
    metadata_.insert("qwen3.size", {int64_t{64}});
    metadata_.insert("qwen3.unsigned", {uint64_t{65}});
    metadata_.insert("qwen3.beyond", {std::numeric_limits<uint64_t>::max()});
    metadata_.insert("qwen3.float", {66.0});
    metadata_.insert("qwen3.half", {0.5});
    metadata_.insert("qwen3.flag", {true});
    metadata_.insert("qwen3.text", {std::string_view("67")});
    metadata_.insert("qwen3.one", {Array(Whole{68})});
    metadata_.insert("qwen3.three", {Array(Whole{1, 2, 3})});
    metadata_.insert("qwen3.flags", {Array(std::vector<bool>{true, false})});
    metadata_.insert("qwen3.floats", {Array(std::vector<double>{1, 2})});
    metadata_.insert("size", {int64_t{1}});
    metadata_.insert("llama.other", {int64_t{2}});
  }
  template <typename T>
  static void expect_refused(const Result<T>& result, ErrorCode code, std::string_view message) {
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_EQ(result.error().code, code);
    EXPECT_EQ(result.error().message, message);
  }

  Metadata metadata_;
  const GgufKeys keys_{metadata_, "qwen3"};
};

TEST_F(GgufKeysTest, KeysStandUnderTheirArchitecture) {
  EXPECT_EQ(keys_.name("rope.freq_base"), "qwen3.rope.freq_base");
  EXPECT_EQ(keys_.integer("size").value(), 64);
  EXPECT_TRUE(keys_.has("size"));
  EXPECT_FALSE(keys_.has("other")) << "it is another architecture's";
  EXPECT_FALSE(keys_.has("qwen3.size"));
}

// Converters of every age write whole numbers in their own width.
TEST_F(GgufKeysTest, WholeNumbersComeInEveryType) {
  EXPECT_EQ(keys_.integer("unsigned").value(), 65);
  EXPECT_EQ(keys_.integer("float").value(), 66);
  EXPECT_EQ(keys_.integer("flag").value(), 1);
  EXPECT_EQ(keys_.integer("one").value(), 68);
}

// A key that is there is never passed over for the default.
TEST_F(GgufKeysTest, ADefaultIsForAbsentKeysOnly) {
  EXPECT_EQ(keys_.integer("absent", 5).value(), 5);
  expect_refused(keys_.integer("absent"), ErrorCode::kNotFound,
                 "the GGUF file has no key qwen3.absent, which is needed");
  for (const std::string_view key : {"half", "text", "three", "beyond", "floats"}) {
    expect_refused(keys_.integer(key, 5), ErrorCode::kInvalidArgument,
                   "GGUF key qwen3." + std::string(key) + " must be a whole number");
  }
}

TEST_F(GgufKeysTest, NumbersAndFlagsOfAnotherKindAreTheDefault) {
  EXPECT_EQ(keys_.number("half", 1), 0.5);
  EXPECT_EQ(keys_.number("size", 1), 64);
  EXPECT_EQ(keys_.number("text", 1), 1);
  EXPECT_EQ(keys_.number("absent", 2), 2);
  EXPECT_TRUE(keys_.boolean("flag", false));
  EXPECT_TRUE(keys_.boolean("size", false));
  EXPECT_TRUE(keys_.boolean("text", true));
  EXPECT_FALSE(keys_.boolean("absent", false));
}

TEST_F(GgufKeysTest, ANumberIsForAllLayersAndAListForEach) {
  EXPECT_EQ(keys_.per_layer("size", 3).value(), (Whole{64, 64, 64}));
  EXPECT_EQ(keys_.per_layer("one", 2).value(), (Whole{68, 68}));
  EXPECT_EQ(keys_.per_layer("three", 3).value(), (Whole{1, 2, 3}));
  EXPECT_EQ(keys_.per_layer("flags", 2).value(), (Whole{1, 0}));
  // Prediction heads are layers of the list that are not run.
  EXPECT_EQ(keys_.per_layer("three", 2).value(), (Whole{1, 2}));
  EXPECT_EQ(keys_.per_layer("absent", 2, -1).value(), (Whole{-1, -1}));
}

TEST_F(GgufKeysTest, ListsAreLongEnough) {
  expect_refused(keys_.per_layer("absent", 2), ErrorCode::kNotFound,
                 "the GGUF file has no key qwen3.absent, which is needed");
  expect_refused(keys_.per_layer("three", 4, 7), ErrorCode::kInvalidArgument,
                 "GGUF key qwen3.three must be a whole number or an array of 4 of them");
  expect_refused(keys_.per_layer("text", 1, 7), ErrorCode::kInvalidArgument,
                 "GGUF key qwen3.text must be a whole number or an array of 1 of them");
  expect_refused(keys_.per_layer("floats", 2), ErrorCode::kInvalidArgument,
                 "GGUF key qwen3.floats must be a whole number or an array of 2 of them");
}

}  // namespace gguf_keys_test
}  // namespace headrace
