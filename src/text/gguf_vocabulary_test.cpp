// Tokenizers from vocabularies as GGUF files hold them, of our own making.

#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer.h"

namespace headrace {
namespace gguf_vocabulary_test {

using Ids = std::vector<int32_t>;

// SentencePiece BPE: <unk> <s> </s>, 256 byte tokens from id 3, then pieces by score.
struct Scored {
  std::vector<std::string> texts;
  GgufVocabulary vocabulary;

  Scored() {
    add("<unk>", 2, 0);
    add("<s>", 3, 0);
    add("</s>", 3, 0);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6, 0);
    float score = 0;
    for (const char* piece : {"▁a", "ab", "abc", "▁", "a", "b", "c"}) add(piece, 1, score--);
    vocabulary.model = "llama";
  }

  void add(std::string text, int32_t type, float score) {
    texts.push_back(std::move(text));
    vocabulary.token_types.push_back(type);
    vocabulary.scores.push_back(score);
  }

  Result<std::unique_ptr<Tokenizer>> build() {
    vocabulary.tokens.assign(texts.begin(), texts.end());
    return Tokenizer::from_gguf(vocabulary);
  }
};

constexpr int32_t kFirstPiece = 259;

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool add_special = false) {
  const auto ids = tokenizer.encode(text, add_special);
  CHECK(ids.ok(), "{}", ids.error().message);
  return *ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  const auto text = tokenizer.decode(ids, false);
  CHECK(text.ok(), "{}", text.error().message);
  return *text;
}

TEST(GgufVocabulary, ScoredPairsMergeByScore) {
  Scored scored;
  const auto tokenizer = scored.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  // "▁abc": "▁a" has the best score, so "ab" is not made.
  EXPECT_EQ(encode(**tokenizer, "abc"), (Ids{kFirstPiece, kFirstPiece + 5, kFirstPiece + 6}));
  // In "▁cabc" it is: "▁" "c" "abc".
  EXPECT_EQ(encode(**tokenizer, "cabc"), (Ids{kFirstPiece + 3, kFirstPiece + 6, kFirstPiece + 2}));
  EXPECT_EQ(encode(**tokenizer, "c", true), (Ids{1, kFirstPiece + 3, kFirstPiece + 6}));
  EXPECT_TRUE((*tokenizer)->adds_bos());
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
}

TEST(GgufVocabulary, ScoredTextFallsBackToBytesAndComesBack) {
  Scored scored;
  const auto tokenizer = scored.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "é"), (Ids{kFirstPiece + 3, 3 + 0xC3, 3 + 0xA9}));
  for (const char* text : {"abc", " a", "é🙂", "a\nb", "x y  z"}) {
    EXPECT_EQ(decode(**tokenizer, encode(**tokenizer, text)), text);
  }
  // Each byte that is no character is marked.
  EXPECT_EQ(decode(**tokenizer, {3 + 0xE2, 3 + 0x82, kFirstPiece + 4}), "\uFFFD\uFFFDa");
}

TEST(GgufVocabulary, FlagsOfTheFileRule) {
  Scored scored;
  scored.vocabulary.add_bos = false;
  scored.vocabulary.add_eos = true;
  scored.vocabulary.eos_id = 2;
  scored.vocabulary.add_space_prefix = false;
  const auto tokenizer = scored.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "c", true), (Ids{kFirstPiece + 6, 2}));
  EXPECT_FALSE((*tokenizer)->adds_bos());
  EXPECT_EQ(decode(**tokenizer, {kFirstPiece + 3, kFirstPiece + 6}), " c");
}

// A user-defined run of blanks is such a run in the text, and U+2581 written out is cut out first.
TEST(GgufVocabulary, RunsOfBlanks) {
  Scored scored;
  scored.add("  ", 4, -1000);
  scored.add("    ", 4, -1000);
  scored.vocabulary.add_space_prefix = false;
  const auto tokenizer = scored.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const int32_t two = kFirstPiece + 7;
  EXPECT_EQ(encode(**tokenizer, "  c"), (Ids{two, kFirstPiece + 6}));
  EXPECT_EQ(encode(**tokenizer, "▁▁a"), (Ids{two, kFirstPiece + 4}));
  EXPECT_EQ(encode(**tokenizer, "      "), (Ids{two + 1, two}));
  EXPECT_EQ(decode(**tokenizer, {two, kFirstPiece + 6}), "  c");
}

TEST(GgufVocabulary, OddEntries) {
  Scored scored;
  scored.add("", 1, -50);        // empty
  scored.add("ab", 1, -51);      // again
  scored.add("[PAD9]", 5, -52);  // unused
  scored.add("a\xFF", 1, -53);   // not UTF-8
  const auto tokenizer = scored.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const int32_t odd = kFirstPiece + 7;
  EXPECT_EQ(encode(**tokenizer, "cab").back(), kFirstPiece + 1);  // the first "ab"
  EXPECT_EQ(decode(**tokenizer, {odd + 1}), "ab");                // yet the second decodes
  EXPECT_EQ(decode(**tokenizer, {odd, odd + 2, odd + 3}), "");
  EXPECT_EQ((*tokenizer)->id_to_token(odd + 2), "[PAD9]");
  for (const int32_t id : encode(**tokenizer, "[PAD9]")) EXPECT_NE(id, odd + 2);
}

// Byte-level BPE over "a".."e", blank (U+0120) and two merges.
struct ByteLevel {
  std::vector<std::string> texts = {"a", "b",  "c",   "d",       "e",    "Ġ",
                                    "1", "ab", "Ġab", "<|end|>", "<x y>"};
  GgufVocabulary vocabulary;

  ByteLevel() {
    vocabulary.model = "gpt2";
    vocabulary.pre = "qwen2";
    vocabulary.token_types = {1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4};
    vocabulary.merges = {"a b", "Ġ ab"};
  }

  Result<std::unique_ptr<Tokenizer>> build() {
    vocabulary.tokens.assign(texts.begin(), texts.end());
    return Tokenizer::from_gguf(vocabulary);
  }
};

TEST(GgufVocabulary, ByteLevel) {
  ByteLevel bytes;
  bytes.vocabulary.bos_id = 9;
  const auto tokenizer = bytes.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "ab ab<|end|>c<x y>"), (Ids{7, 8, 9, 2, 10}));
  EXPECT_EQ(decode(**tokenizer, {7, 8, 9, 2, 10}), "ab ab<|end|>c<x y>");
  EXPECT_TRUE((*tokenizer)->is_special(9));
  EXPECT_FALSE((*tokenizer)->is_special(10));
  // A BOS id alone adds nothing: the flag decides.
  EXPECT_EQ(encode(**tokenizer, "a", true), (Ids{0}));
  EXPECT_FALSE((*tokenizer)->adds_bos());
}

TEST(GgufVocabulary, MergesAreRebuiltFromTheOrderOfTokens) {
  ByteLevel bytes;
  bytes.vocabulary.pre = "kimi-k2";
  bytes.vocabulary.merges.clear();
  const auto tokenizer = bytes.build();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "ab ab"), (Ids{7, 8}));
}

TEST(GgufVocabulary, EmbeddedTokenizerJsonRules) {
  ByteLevel bytes;
  bytes.vocabulary.huggingface_json = "{ not json";
  const auto tokenizer = bytes.build();
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
}

void expect_refused(Result<std::unique_ptr<Tokenizer>> tokenizer, ErrorCode code,
                    const char* names) {
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, code);
  EXPECT_NE(tokenizer.error().message.find(names), std::string::npos) << tokenizer.error().message;
}

TEST(GgufVocabulary, WhatIsUnknownIsRefusedByName) {
  ByteLevel bytes;
  bytes.vocabulary.pre = "brand-new-split";
  expect_refused(bytes.build(), ErrorCode::kUnsupported, "brand-new-split");
  bytes.vocabulary.model = "rwkv";
  expect_refused(bytes.build(), ErrorCode::kUnsupported, "rwkv");
}

TEST(GgufVocabulary, ContradictionsAreRefused) {
  ByteLevel bytes;
  bytes.vocabulary.token_types.pop_back();
  expect_refused(bytes.build(), ErrorCode::kCorrupt, "token_type");
  bytes = ByteLevel();
  bytes.vocabulary.merges.push_back("ab");
  expect_refused(bytes.build(), ErrorCode::kCorrupt, "merge 2");
  bytes = ByteLevel();
  bytes.vocabulary.merges.push_back("a zz");
  expect_refused(bytes.build(), ErrorCode::kCorrupt, "zz");
  bytes = ByteLevel();
  bytes.texts.clear();
  bytes.vocabulary.token_types.clear();
  expect_refused(bytes.build(), ErrorCode::kCorrupt, "no tokens");
  Scored scored;
  scored.vocabulary.scores.clear();
  expect_refused(scored.build(), ErrorCode::kCorrupt, "scores");
}

// Arbitrary bytes as tokens, types, merges and ids: an error or a tokenizer that works.
TEST(GgufVocabulary, ArbitraryVocabulariesNeverCrash) {
  std::mt19937 random(5);
  int num_built = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> texts(1 + random() % 40);
    GgufVocabulary vocabulary;
    for (std::string& text : texts) {
      for (size_t i = random() % 4; i > 0; --i) text += "ab \xC4\xA0\xFF<"[random() % 7];
      vocabulary.token_types.push_back(static_cast<int32_t>(random() % 8));
      vocabulary.scores.push_back(random() % 9 == 0 ? std::nanf("") : static_cast<float>(random()));
    }
    vocabulary.tokens.assign(texts.begin(), texts.end());
    vocabulary.model = round % 2 ? "llama" : "gpt2";
    vocabulary.pre = "llama-bpe";
    vocabulary.bos_id = static_cast<int32_t>(random()) % 50;
    const auto tokenizer = Tokenizer::from_gguf(vocabulary);
    if (!tokenizer.ok()) continue;
    ++num_built;
    const auto ids = (*tokenizer)->encode("ab a<b \u0120 a\n", true);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_TRUE((*tokenizer)->decode(*ids, false).ok());
  }
  EXPECT_GT(num_built, 100);
}

}  // namespace gguf_vocabulary_test
}  // namespace headrace
