// The gate before what an answer is held to, token by token, with tokens taken back.

#include "server/api/parts/reasoning_gate.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace headrace {
namespace reasoning_gate_test {

// One id for each of some texts, and bytes.
class FewTokens final : public Tokenizer {
 public:
  Result<std::vector<int32_t>> encode(std::string_view text, bool,
                                      const EncodeLimits&) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      int32_t best = static_cast<unsigned char>(text[0]);
      size_t size = 1;
      for (size_t i = 0; i < std::size(kTexts); ++i) {
        if (!text.starts_with(kTexts[i]) || kTexts[i].size() <= size) continue;
        best = static_cast<int32_t>(256 + i);
        size = kTexts[i].size();
      }
      ids.push_back(best);
      text.remove_prefix(size);
    }
    return ids;
  }
  Result<std::string> decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, false);
    return text;
  }
  int32_t vocab_size() const override { return 256 + static_cast<int32_t>(std::size(kTexts)); }
  std::optional<std::string> id_to_token(int32_t id) const override {
    return token_bytes(id, false);
  }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string token_bytes(int32_t id, bool) const override {
    return id < 256 ? std::string(1, static_cast<char>(id))
                    : std::string(kTexts[static_cast<size_t>(id - 256)]);
  }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }

  int32_t id(std::string_view text) const { return encode(text, false, {}).value()[0]; }

 private:
  static constexpr std::string_view kTexts[] = {"<think>", "</think>", "\n\n"};
};

// Allows the bytes of a text, in order.
class Fixed final : public Constraint {
 public:
  explicit Fixed(std::string text) : text_(std::move(text)) {}
  void fill_mask(std::span<uint64_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    if (at_ >= text_.size()) return;
    const auto id = static_cast<unsigned char>(text_[at_]);
    mask[id / 64] |= uint64_t{1} << (id % 64);
  }
  void accept(int32_t id) override {
    EXPECT_EQ(id, static_cast<unsigned char>(text_.at(at_)));
    ++at_;
  }
  void rollback(int32_t num_tokens) override { at_ -= static_cast<size_t>(num_tokens); }

 private:
  const std::string text_;
  size_t at_ = 0;
};

class GateTest : public testing::Test {
 protected:
  std::vector<int32_t> allowed(ReasoningGate& gate) const {
    std::vector<uint64_t> mask(mask_words(tokens_.vocab_size()));
    gate.fill_mask(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < tokens_.vocab_size(); ++id) {
      if (mask_allows(mask.data(), id)) ids.push_back(id);
    }
    return ids;
  }
  void say(ReasoningGate& gate, std::string_view text) const {
    for (const int32_t id : tokens_.encode(text, false, {}).value()) {
      const auto ids = allowed(gate);
      ASSERT_TRUE(std::find(ids.begin(), ids.end(), id) != ids.end()) << text << " " << id;
      gate.accept(id);
    }
  }
  ReasoningGate gate(std::shared_ptr<Constraint> inner, bool inside,
                     std::optional<int32_t> max_tokens = {}) const {
    return ReasoningGate(tokens_, {"<think>", "</think>", inside, max_tokens, {'$'}},
                         std::move(inner));
  }
  size_t all() const { return static_cast<size_t>(tokens_.vocab_size()); }

  const FewTokens tokens_;
};

TEST_F(GateTest, WhatAnAnswerIsHeldToBeginsBehindTheReasoning) {
  ReasoningGate made = gate(std::make_shared<Fixed>("ab"), true);
  EXPECT_EQ(allowed(made).size(), all() - 1);  // any token but the end
  say(made, "any {text}</think>");
  const std::vector<int32_t> first = allowed(made);
  EXPECT_EQ(first, (std::vector<int32_t>{'\n', 'a', tokens_.id("\n\n")}));
  say(made, "\n\na");
  EXPECT_EQ(allowed(made), std::vector<int32_t>{'b'});
}

TEST_F(GateTest, TheModelMayReasonOrNot) {
  ReasoningGate made = gate(std::make_shared<Fixed>("ab"), false);
  EXPECT_EQ(allowed(made), (std::vector<int32_t>{'\n', 'a', 256, tokens_.id("\n\n")}));
  say(made, "ab");
  EXPECT_TRUE(allowed(made).empty());
  ReasoningGate other = gate(std::make_shared<Fixed>("ab"), false);
  say(other, "<think>hm</think>ab");
  EXPECT_TRUE(allowed(other).empty());
}

TEST_F(GateTest, TheClosingMarkFollowsWhenTheBudgetIsSpent) {
  for (const bool held : {true, false}) {
    ReasoningGate made =
        gate(held ? std::make_shared<Fixed>("ab") : nullptr, true, std::optional<int32_t>(3));
    say(made, "xyz");
    EXPECT_EQ(allowed(made), std::vector<int32_t>{tokens_.id("</think>")});
    say(made, "</think>a");
    EXPECT_EQ(allowed(made).size(), held ? 1 : all());
  }
  ReasoningGate none = gate(nullptr, true, 0);
  EXPECT_EQ(allowed(none), std::vector<int32_t>{tokens_.id("</think>")});
}

TEST_F(GateTest, ABudgetHoldsForReasoningThatTheModelOpens) {
  ReasoningGate made = gate(nullptr, false, 2);
  say(made, "<think>xy");
  EXPECT_EQ(allowed(made), std::vector<int32_t>{tokens_.id("</think>")});
  ReasoningGate without = gate(nullptr, false, 2);
  say(without, "An answer without any, then <think>xyz");
  EXPECT_EQ(allowed(without).size(), all());
}

// Any path back and forth leads to the same masks as the straight one.
TEST_F(GateTest, TokensAreTakenBack) {
  const std::vector<int32_t> path = tokens_.encode("<think>abc</think>\nxy", false, {}).value();
  std::vector<std::vector<int32_t>> masks;
  ReasoningGate straight = gate(std::make_shared<Fixed>("xy"), false, 5);
  for (const int32_t id : path) {
    masks.push_back(allowed(straight));
    straight.accept(id);
  }
  masks.push_back(allowed(straight));
  std::mt19937 random(3);
  ReasoningGate made = gate(std::make_shared<Fixed>("xy"), false, 5);
  size_t at = 0;
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(allowed(made), masks[at]) << at;
    if (at < path.size() && random() % 3 != 0) {
      made.accept(path[at++]);
    } else {
      const size_t back = random() % (at + 1);
      made.rollback(static_cast<int32_t>(back));
      at -= back;
    }
  }
}

}  // namespace reasoning_gate_test
}  // namespace headrace
