// Texts encoded slice by slice: the ids of the text at once, within bounded time and memory.

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "text/test_support.h"
#include "text/tokenizer.h"

namespace headrace {
namespace sliced_text_test {

using Ids = std::vector<int32_t>;

constexpr size_t kOnePiece = size_t{1} << 40;
constexpr int64_t kContext = 32768;

// What texts are made of: words, scripts, blanks, emoji, marks, and the tokens' own spellings.
const std::vector<std::string>& parts() {
  static const std::vector<std::string> kParts = {"the",
                                                  "Hello",
                                                  " world",
                                                  "don't",
                                                  "WE'LL",
                                                  "a",
                                                  "Z",
                                                  "0",
                                                  "1234567",
                                                  "3.14",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\n\n",
                                                  "\r\n",
                                                  "\t",
                                                  "    ",
                                                  ".",
                                                  "/",
                                                  "...",
                                                  "://",
                                                  "{\"k\": [1]}",
                                                  "_",
                                                  "\u00e9",
                                                  "e\u0301",
                                                  "\u0301",
                                                  "\u00df",
                                                  "\u4f60\u597d",
                                                  "\uff0c",
                                                  "\u3053\u3093",
                                                  "\u30ab\u3099",
                                                  "\ud55c\uae00",
                                                  "\u1112\u1161\u11ab",
                                                  "\u0440\u0443\u0441",
                                                  "\u0645\u0631\u062d",
                                                  "\u0939\u093f\u0928",
                                                  "\u0e44\u0e17\u0e22",
                                                  "\U0001F642",
                                                  "\U0001F44D\U0001F3FD",
                                                  "\u200d",
                                                  "\u2126",
                                                  "\u212a",
                                                  "\u037e",
                                                  "\u00a0",
                                                  "\u2003",
                                                  "\u2581",
                                                  "<",
                                                  "<|im_end|>",
                                                  "<|im_start|>",
                                                  "<|eot_id|>",
                                                  "<s>",
                                                  "</s>",
                                                  "<eos>",
                                                  "<|end",
                                                  "<think>",
                                                  "</think>",
                                                  "<0x0A>",
                                                  "\\n"};
  return kParts;
}

std::string random_text(std::mt19937& random, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) {
    const std::string& part = parts()[random() % parts().size()];
    // Now and then a run, which has no place to cut.
    const size_t count = random() % 12 == 0 ? 1 + random() % 400 : 1 + random() % 2;
    for (size_t i = 0; i < count; ++i) text += part;
  }
  return text;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, size_t slice_bytes) {
  const auto ids = tokenizer.encode(text, true, {.slice_bytes = slice_bytes});
  CHECK(ids.ok(), "{}", ids.error().message);
  return *ids;
}

size_t check_slices(const Tokenizer& tokenizer) {
  std::mt19937 random(7);
  size_t num_texts = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string text = random_text(random, 200 + random() % 4000);
    const Ids whole = encode(tokenizer, text, kOnePiece);
    for (const size_t slice_bytes : {7UL, 64UL + random() % 64, 1000UL}) {
      EXPECT_EQ(encode(tokenizer, text, slice_bytes), whole) << slice_bytes << ": " << text;
      ++num_texts;
    }
    if (testing::Test::HasFailure()) break;
  }
  return num_texts;
}

void check_usual_slices(const Tokenizer& tokenizer) {
  std::mt19937 random(8);
  const std::string text = random_text(random, 150000);
  EXPECT_EQ(encode(tokenizer, text, 0), encode(tokenizer, text, kOnePiece));
  for (const std::string& part : parts()) {
    std::string run;
    while (run.size() < 30000) run += part;
    EXPECT_EQ(encode(tokenizer, run, 0), encode(tokenizer, run, kOnePiece)) << part;
  }
}

// Refused in words that name both numbers, long before the whole is looked at.
void check_refusal(const Tokenizer& tokenizer, const std::string& part, size_t num_mib) {
  std::string text;
  while (text.size() < num_mib << 20) text += part;
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer.encode(text, false, {.max_tokens = kContext});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::cout << num_mib << " MiB of '" << part << "': " << taken.count() << " s\n";
  EXPECT_LT(taken.count(), 5.0) << part;
  if (ids.ok()) {
    EXPECT_LT(num_mib, 16U) << part;
    return;
  }
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(ids.error().message.find("32768 tokens"), std::string::npos) << ids.error().message;
}

void check_refusals(const Tokenizer& tokenizer) {
  for (const char* part :
       {"a", "7", " ", "\n", "\U0001F642", "\u4f60", "<|im_end|>", "the cat. "}) {
    for (const size_t num_mib : {1U, 31U}) check_refusal(tokenizer, part, num_mib);
  }
}

void check_all(const Tokenizer& tokenizer) {
  std::cout << check_slices(tokenizer) << " sliced texts\n";
  check_usual_slices(tokenizer);
  check_refusals(tokenizer);
}

TEST(SlicedText, HasTheIdsOfTheWhole) {
  const auto tokenizer = Tokenizer::from_json(test::read_file(
      std::filesystem::path(HEADRACE_SOURCE_DIR) / "tests" / "data" / "tiny_byte_level.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  check_all(**tokenizer);
}

TEST(SlicedText, AsksBetweenSlicesWhetherToStop) {
  const auto tokenizer = Tokenizer::from_json(test::read_file(
      std::filesystem::path(HEADRACE_SOURCE_DIR) / "tests" / "data" / "tiny_byte_level.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text(1 << 20, 'a');
  int num_asked = 0;
  const auto ids =
      (*tokenizer)->encode(text, false, {.stopped = [&] { return ++num_asked == 20; }});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(num_asked, 20);
}

class SlicedJson : public testing::TestWithParam<const char*> {};

TEST_P(SlicedJson, HasTheIdsOfTheWhole) {
  const auto folder = test::folder_from("HEADRACE_TEST_TOKENIZERS");
  if (!folder) GTEST_SKIP() << "set HEADRACE_TEST_TOKENIZERS";
  const auto tokenizer =
      Tokenizer::from_json(test::read_file(*folder / (std::string(GetParam()) + ".json")));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  check_all(**tokenizer);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, SlicedJson,
                         testing::Values("qwen3", "gemma3", "gptoss", "deepseek_v3", "llama3_1"));

class SlicedGguf : public testing::TestWithParam<const char*> {};

TEST_P(SlicedGguf, HasTheIdsOfTheWhole) {
  const auto folder = test::folder_from("HEADRACE_TEST_MODELS");
  if (!folder) GTEST_SKIP() << "set HEADRACE_TEST_MODELS";
  const auto checkpoint = Checkpoint::open((*folder / GetParam()).string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto tokenizer = Tokenizer::from_gguf(test::vocabulary_of(**checkpoint));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  check_all(**tokenizer);
}

INSTANTIATE_TEST_SUITE_P(Models, SlicedGguf,
                         testing::Values("smollm2-135m.gguf", "qwen2.5-coder-0.5b.gguf",
                                         "gemma3-270m.gguf"));

}  // namespace sliced_text_test
}  // namespace headrace
