#include "cli/conversation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/message_reader.h"

namespace headrace {
namespace cli_conversation_test {

// One token per letter of every message.
Result<std::vector<int32_t>> encode_letters(const boost::json::array& messages) {
  std::vector<int32_t> ids;
  for (const auto& message : messages) {
    for (const char c : message.at("content").as_string()) ids.push_back(c);
  }
  return ids;
}

std::string text_of(const Conversation::Prompt& prompt) {
  return {prompt.ids.begin(), prompt.ids.end()};
}

TEST(Conversation, ForgetsTheOldestTurnsAndNeverTheSystemMessage) {
  Conversation conversation;
  conversation.set_system("S");
  for (const char* turn : {"aaaa", "bbbb", "cccc"}) {
    conversation.add("user", turn);
    conversation.add("assistant", "....");
  }
  conversation.add("user", "dddd");
  const auto prompt = conversation.make_prompt(encode_letters, {20}, 4);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(text_of(*prompt), "Scccc....dddd");
  EXPECT_EQ(prompt->num_forgotten, 4);
  EXPECT_EQ(conversation.messages().size(), 7u) << "all are kept for /save";
  EXPECT_EQ(conversation.make_prompt(encode_letters, {20}, 4)->num_forgotten, 0) << "said once";
}

TEST(Conversation, LastQuestionMayTakeTheRoomOfTheAnswerButNotAllOfIt) {
  Conversation conversation;
  conversation.add("user", "12345678");
  EXPECT_EQ(text_of(*conversation.make_prompt(encode_letters, {9}, 4)), "12345678");
  const auto refused = conversation.make_prompt(encode_letters, {8, "--context"}, 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().to_string(),
            "the message has 8 tokens, and the context holds 8 (shorten it, or start with a larger "
            "--context)");
}

TEST(Conversation, TakesBackOnlyWhatTheRoleSaid) {
  Conversation conversation;
  conversation.add("user", "q");
  EXPECT_FALSE(conversation.take_back("assistant"));
  EXPECT_TRUE(conversation.take_back("user"));
  EXPECT_FALSE(conversation.take_back("user"));
}

// A reader whose lines are given; "^C" stands for an interruption.
MessageReader reader_of(std::vector<std::string> lines) {
  return MessageReader([lines = std::move(lines), at = size_t{0}](const std::string&) mutable {
    if (at == lines.size()) return ReadLine{ReadEnd::kEndOfInput, ""};
    const std::string& line = lines[at++];
    if (line == "^C") return ReadLine{ReadEnd::kInterrupted, ""};
    return ReadLine{ReadEnd::kLine, line};
  });
}

TEST(MessageReader, BlockBetweenTripleQuotesIsOneMessage) {
  EXPECT_EQ(reader_of({"\"\"\"", "one", "", "two", "\"\"\""}).read().text, "one\n\ntwo");
  EXPECT_EQ(reader_of({"\"\"\"one", "two\"\"\" "}).read().text, "one\ntwo");
  EXPECT_EQ(reader_of({"\"\"\"one\"\"\"", "next"}).read().text, "one");
  EXPECT_EQ(reader_of({"say \"\"\" aloud"}).read().text, "say \"\"\" aloud");
}

TEST(MessageReader, InterruptionDropsTheBlockAndTheEndKeepsIt) {
  auto interrupted = reader_of({"\"\"\"", "one", "^C", "two"});
  EXPECT_EQ(interrupted.read().end, ReadEnd::kInterrupted);
  EXPECT_EQ(interrupted.read().text, "two");
  auto cut = reader_of({"\"\"\"one", "two"});
  EXPECT_EQ(cut.read().text, "one\ntwo");
  EXPECT_EQ(cut.read().end, ReadEnd::kEndOfInput);
}

}  // namespace cli_conversation_test
}  // namespace headrace
