// Token ids of real tokenizers, against what the Hugging Face library gives.

#include <gtest/gtest.h>

#include "text/stream_decoder.h"
#include "text/test_support.h"
#include "text/tokenizer.h"

namespace headrace {
namespace tokenizer_golden_test {

namespace json = boost::json;
using test::ids_of;
using test::text_of;

// All texts of a golden file: ids without and with special tokens, decoded text.
void check_texts(const Tokenizer& tokenizer, const json::object& golden) {
  int num_texts = 0;
  for (const json::value& row : golden.at("cases").as_array()) {
    const json::object& expected = row.as_object();
    const std::string text = text_of(expected.at("text"));
    SCOPED_TRACE(json::serialize(expected.at("text")));
    const auto ids = tokenizer.encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, ids_of(expected.at("ids")));
    const auto with_special = tokenizer.encode(text, true);
    ASSERT_TRUE(with_special.ok()) << with_special.error().message;
    EXPECT_EQ(*with_special, ids_of(expected.at("ids_with_special")));
    const auto decoded = tokenizer.decode(*ids, false);
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    EXPECT_EQ(*decoded, text_of(expected.at("decoded")));
    ++num_texts;
  }
  EXPECT_GT(num_texts, 0);
  std::cout << num_texts << " texts\n";
}

// Streamed text is decoded text, from the first token on and after any part as context.
void check_streams(const Tokenizer& tokenizer, const json::object& golden) {
  int num_splits = 0;
  for (const json::value& row : golden.at("cases").as_array()) {
    const std::vector<int32_t> ids = ids_of(row.as_object().at("ids_with_special"));
    SCOPED_TRACE(json::serialize(row.as_object().at("text")));
    for (const bool skip_special : {false, true}) {
      const auto whole = tokenizer.decode(ids, skip_special);
      ASSERT_TRUE(whole.ok());
      for (size_t split = 0; split <= ids.size(); ++split) {
        std::string text;
        std::vector<int32_t> context(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(split));
        // What the context showed as it streamed is what the rest continues.
        StreamDecoder first(tokenizer, {}, skip_special);
        for (const int32_t id : context) text += first.push(id).text;
        StreamDecoder second(tokenizer, {}, skip_special, false, context);
        for (size_t i = split; i < ids.size(); ++i) text += second.push(ids[i]).text;
        text += second.finish().text;
        ASSERT_EQ(text, *whole) << "split at " << split;
        ++num_splits;
      }
    }
  }
  EXPECT_GT(num_splits, 0);
}

class JsonGolden : public testing::TestWithParam<const char*> {};

TEST_P(JsonGolden, IdsTextAndStreams) {
  const auto folder = test::folder_from("HEADRACE_TEST_TOKENIZERS");
  if (!folder) {
    GTEST_SKIP()
        << "set HEADRACE_TEST_TOKENIZERS to a folder that tools/fetch_tokenizers.py filled";
  }
  const std::string name = std::string(GetParam()) + ".json";
  const json::object expected = test::recorded("tokenizers/" + name);
  const auto tokenizer = Tokenizer::from_json(test::read_file(*folder / name));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  check_texts(**tokenizer, expected);
  check_streams(**tokenizer, expected);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, JsonGolden,
                         testing::Values("qwen3", "gemma3", "gptoss", "deepseek_v3", "llama3_1"));

struct GgufCase {
  const char* golden;
  const char* model;
};

class GgufGolden : public testing::TestWithParam<GgufCase> {};

TEST_P(GgufGolden, IdsTextAndStreams) {
  const auto folder = test::folder_from("HEADRACE_TEST_MODELS");
  if (!folder) GTEST_SKIP() << "set HEADRACE_TEST_MODELS to a folder with " << GetParam().model;
  const json::object expected = test::recorded(std::string("tokenizers/") + GetParam().golden);
  const auto checkpoint = Checkpoint::open((*folder / GetParam().model).string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto tokenizer = Tokenizer::from_gguf(test::vocabulary_of(**checkpoint));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  check_texts(**tokenizer, expected);
  check_streams(**tokenizer, expected);
}

std::string model_name(const testing::TestParamInfo<GgufCase>& test_info) {
  const std::string name = test_info.param.golden;
  return name.substr(0, name.find_first_of("._"));
}

INSTANTIATE_TEST_SUITE_P(Models, GgufGolden,
                         testing::Values(GgufCase{"smollm2.json", "smollm2-135m.gguf"},
                                         GgufCase{"qwen2.5.json", "qwen2.5-coder-0.5b.gguf"},
                                         GgufCase{"gemma3.json", "gemma3-270m.gguf"}),
                         model_name);

}  // namespace tokenizer_golden_test
}  // namespace headrace
