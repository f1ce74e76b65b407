#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "text/test_support.h"

namespace headrace {
namespace tokenizer_test {

using Ids = std::vector<int32_t>;

std::string tiny_json() {
  return test::read_file(std::filesystem::path(HEADRACE_SOURCE_DIR) / "tests" / "data" /
                         "tiny_byte_level.json");
}

std::unique_ptr<Tokenizer> tiny() {
  auto tokenizer = Tokenizer::from_json(tiny_json());
  CHECK(tokenizer.ok(), "{}", tokenizer.error().message);
  return std::move(tokenizer).value();
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool add_special = false) {
  const auto ids = tokenizer.encode(text, add_special);
  CHECK(ids.ok(), "{}", ids.error().message);
  return *ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = false) {
  const auto text = tokenizer.decode(ids, skip_special);
  CHECK(text.ok(), "{}", text.error().message);
  return *text;
}

TEST(Tokenizer, MergesByRankAndKeepsTheText) {
  const auto tokenizer = tiny();
  EXPECT_EQ(encode(*tokenizer, "hello world"), (Ids{259, 264}));
  EXPECT_EQ(encode(*tokenizer, " hello"), (Ids{265}));
  EXPECT_EQ(encode(*tokenizer, "123"), (Ids{266, *tokenizer->token_to_id("3")}));
  for (const char* text : {"", "hello", " a  b\n\n", "née 🙂 €", "a\u00e9\t"}) {
    EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, text)), text);
  }
}

TEST(Tokenizer, ATextOfTooManyTokensIsRefusedWithTheNumbers) {
  const auto tokenizer = tiny();
  const size_t num_tokens = encode(*tokenizer, "hello world").size();
  const auto limit = static_cast<int64_t>(num_tokens);
  EXPECT_TRUE(tokenizer->encode("hello world", false, {.max_tokens = limit}).ok());
  const auto ids = tokenizer->encode("hello world", false, {.max_tokens = limit - 1});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ids.error().message,
            "the prompt is too long: it has at least 2 tokens, but this model's maximum context "
            "length is 1 "
            "tokens, prompt and answer together");
}

TEST(Tokenizer, AnEncodingThatIsNotWantedAnyMoreStops) {
  const auto tokenizer = tiny();
  const auto ids =
      tokenizer->encode("hello", false, {.max_tokens = 10, .stopped = [] { return true; }});
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, ErrorCode::kUnavailable);
}

TEST(Tokenizer, NormalisesToNfc) {
  const auto tokenizer = tiny();
  EXPECT_EQ(encode(*tokenizer, "e\u0301"), encode(*tokenizer, "\u00e9"));
}

TEST(Tokenizer, SpecialTokens) {
  const auto tokenizer = tiny();
  const int32_t bos = *tokenizer->token_to_id("<s>");
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos_id(), bos);
  EXPECT_EQ(tokenizer->eos_id(), std::nullopt);
  EXPECT_EQ(encode(*tokenizer, "hello", true), (Ids{bos, 259}));
  const Ids ids = encode(*tokenizer, "<|im_start|>hello<tool_call>");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_TRUE(tokenizer->is_special(ids[0]));
  EXPECT_FALSE(tokenizer->is_special(ids[2]));
  EXPECT_EQ(decode(*tokenizer, ids), "<|im_start|>hello<tool_call>");
  EXPECT_EQ(decode(*tokenizer, ids, true), "hello<tool_call>");
  EXPECT_EQ(tokenizer->token_bytes(ids[0], true), "");
  EXPECT_EQ(tokenizer->token_bytes(ids[0], false), "<|im_start|>");
}

TEST(Tokenizer, ConfigNamesBosAndEos) {
  const auto tokenizer = Tokenizer::from_json(
      tiny_json(), R"({"bos_token": "<|im_start|>", "eos_token": {"content": "</s>"}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->bos_id(), (*tokenizer)->token_to_id("<|im_start|>"));
  EXPECT_EQ((*tokenizer)->eos_id(), (*tokenizer)->token_to_id("</s>"));
  EXPECT_FALSE((*tokenizer)->adds_bos());  // it adds <s>, which is not the BOS named here
}

// Byte-level BPE over the letters A and B, with <s> around texts in front and </s> behind; `more`
// added tokens, and a normalizer.
std::string letters_json(const std::string& normalizer = "null", const std::string& more = "") {
  return R"({"version":"1.0","added_tokens":[)"
         R"({"id":0,"content":"<s>","special":true,"single_word":false,"lstrip":false,)"
         R"("rstrip":false,"normalized":false},)"
         R"({"id":1,"content":"</s>","special":true,"single_word":false,"lstrip":false,)"
         R"("rstrip":false,"normalized":false})" +
         more + R"(],"normalizer":)" + normalizer +
         R"(,"pre_tokenizer":null,"post_processor":{"type":"TemplateProcessing",)"
         R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
         R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],)"
         R"("pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
         R"("special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]},)"
         R"("</s>":{"id":"</s>","ids":[1],"tokens":["</s>"]}}},)"
         R"("decoder":null,"model":{"type":"BPE","vocab":{"<s>":0,"</s>":1,"A":2,"B":3},)"
         R"("merges":[]}})";
}

// As models of proteins have it: BPE drops what the vocabulary has no token for.
TEST(Tokenizer, WhatStandsAroundATextIsFoundWithoutATokenForAnyLetter) {
  const auto tokenizer = Tokenizer::from_json(letters_json());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "AB", true), (Ids{0, 2, 3, 1}));
  EXPECT_EQ(encode(**tokenizer, "a", true), (Ids{0, 1}));
  EXPECT_EQ((*tokenizer)->bos_id(), 0);
  EXPECT_EQ((*tokenizer)->eos_id(), 1);
  EXPECT_TRUE((*tokenizer)->adds_bos());
}

TEST(Tokenizer, TokensThatOnlyTheConfigurationListsAreTokens) {
  const auto listed = [](int32_t id, const std::string& content) {
    return R"({"added_tokens_decoder":{"0":{"content":"<other>","special":true},")" +
           std::to_string(id) + R"(":{"content":")" + content +
           R"(","special":true,"single_word":false,"lstrip":false,"rstrip":false,)" +
           R"("normalized":false}}})";
  };
  const std::string text = "hello<|im_new|>";
  const auto bare = tiny();
  const auto tokenizer = Tokenizer::from_json(tiny_json(), listed(275, "<|im_new|>"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, text), (Ids{259, 275}));
  EXPECT_EQ((*tokenizer)->vocab_size(), 276);
  EXPECT_TRUE((*tokenizer)->is_special(275));
  EXPECT_EQ(decode(**tokenizer, {259, 275}), text);
  // Another id than the next free one is not what the token would get.
  for (const int32_t id : {0, 274, 276, 300}) {
    const auto other = Tokenizer::from_json(tiny_json(), listed(id, "<|im_new|>"));
    ASSERT_TRUE(other.ok()) << other.error().message;
    EXPECT_EQ(encode(**other, text), encode(*bare, text)) << id;
  }
  const auto known = Tokenizer::from_json(tiny_json(), listed(259, "hello"));
  ASSERT_TRUE(known.ok()) << known.error().message;
  EXPECT_EQ(encode(**known, "ahello"), encode(*bare, "ahello"));
}

TEST(Tokenizer, AnAddedTokenThatIsNothingOnceNormalisedIsRefused) {
  const auto tokenizer = Tokenizer::from_json(
      letters_json(R"({"type":"Strip","strip_left":true,"strip_right":true})",
                   R"(,{"id":4,"content":"\n\n","special":false,"single_word":false,)"
                   R"("lstrip":false,"rstrip":false,"normalized":true})"));
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(tokenizer.error().message.find(R"(added token 4, "\n\n")"), std::string::npos)
      << tokenizer.error().message;
}

TEST(Tokenizer, Vocabulary) {
  const auto tokenizer = tiny();
  EXPECT_EQ(tokenizer->vocab_size(), 275);
  EXPECT_EQ(tokenizer->id_to_token(264), "Ġworld");
  EXPECT_EQ(tokenizer->token_to_id("Ġworld"), 264);
  EXPECT_EQ(tokenizer->token_bytes(264, false), " world");
  EXPECT_EQ(tokenizer->token_bytes(267, false), "\xF0\x9F");
  EXPECT_EQ(tokenizer->id_to_token(275), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer->token_to_id("no such"), std::nullopt);
  EXPECT_EQ(tokenizer->token_to_id("\xFF"), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(1 << 30, false), "");
}

TEST(Tokenizer, BrokenBytesDecodeToReplacementCharacters) {
  const auto tokenizer = tiny();
  const int32_t lead = 267;  // the first two bytes of an emoji
  EXPECT_EQ(decode(*tokenizer, {lead}), "\uFFFD");
  EXPECT_EQ(decode(*tokenizer, {lead, 259}), "\uFFFDhello");
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefused) {
  const auto tokenizer = tiny();
  for (const char* text : {"abc\xFF", "abc\xC3", "abc\xED\xA0\x80"}) {
    const auto ids = tokenizer->encode(text, false);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(ids.error().message.find("byte 3"), std::string::npos) << ids.error().message;
  }
}

TEST(Tokenizer, IdsOutOfRangeAreRefusedByName) {
  const auto tokenizer = tiny();
  for (const int32_t id : {-1, 275, 1 << 30}) {
    const auto text = tokenizer->decode(Ids{259, id}, false);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(text.error().message.find(std::to_string(id)), std::string::npos);
  }
}

TEST(Tokenizer, CorruptJsonIsAnError) {
  for (const char* json : {"", "{", "[]", "{\"model\":{}}", "\xFF"}) {
    const auto tokenizer = Tokenizer::from_json(json);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Tokenizer, AddedIdsOutsideTheVocabularyAreRefused) {
  std::string json = tiny_json();
  const size_t at = json.rfind("270", json.find("\"model\""));
  json.replace(at, 3, "999");  // what the post-processor adds
  const auto tokenizer = Tokenizer::from_json(json);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(tokenizer.error().message.find("999"), std::string::npos) << tokenizer.error().message;
}

// Any damage gives an error or a tokenizer that works, never a crash.
TEST(Tokenizer, DamagedJsonNeverCrashes) {
  const std::string whole = tiny_json();
  std::mt19937 random(11);
  int num_refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string json = whole;
    if (round % 3 == 0) json.resize(random() % json.size());
    for (int flips = 0; flips < 3 && !json.empty(); ++flips) {
      json[random() % json.size()] = static_cast<char>("\"{}[],:0e\\u\xC3"[random() % 12]);
    }
    const auto tokenizer = Tokenizer::from_json(json);
    if (!tokenizer.ok()) {
      ++num_refused;
      continue;
    }
    const auto ids = (*tokenizer)->encode("hello <s> wörld 12", true);
    if (ids.ok()) (void)(*tokenizer)->decode(*ids, false);
  }
  EXPECT_GT(num_refused, 100);
}

double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The least processor time of two runs, so that a busy machine does not matter.
double encode_seconds(const Tokenizer& tokenizer, const std::string& text) {
  double best = 1e9;
  for (int run = 0; run < 2; ++run) {
    const double start = cpu_seconds();
    CHECK(tokenizer.encode(text, false).ok());
    best = std::min(best, cpu_seconds() - start);
  }
  return best;
}

std::string repeated(std::string_view unit, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) text += unit;
  return text;
}

TEST(Tokenizer, EncodingIsLinear) {
  const auto tokenizer = tiny();
  for (const char* unit : {"a", "\n", "\u0301", " ", "he said hello "}) {
    const double quarter = encode_seconds(*tokenizer, repeated(unit, 1 << 18));
    const double whole = encode_seconds(*tokenizer, repeated(unit, 1 << 20));
    // Linear would be 4; the margin is for caches. Quadratic would be 16.
    EXPECT_LT(whole, 9 * quarter + 0.05) << '"' << unit << '"';
  }
}

}  // namespace tokenizer_test
}  // namespace headrace
