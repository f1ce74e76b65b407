#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/help.h"
#include "cli/readable.h"
#include "cli/suggest.h"
#include "cli/terminal.h"

namespace headrace {
namespace command_line_test {

using Words = std::vector<std::string>;

TEST(CommandLine, OptionsStandAnywhereBehindTheCommand) {
  for (const Words& words :
       {Words{"run", "--seed", "7", "-m", "x", "a", "b", "--stats"},
        Words{"run", "a", "--seed=7", "b", "--stats", "--model=x"},
        Words{"run", "--seed", "5", "a", "-m=x", "b", "--stats", "--seed", "7"}}) {
    const auto line = parse_command_line(words);
    ASSERT_TRUE(line.ok()) << line.error().message;
    EXPECT_EQ(line->command->name, "run");
    EXPECT_EQ(line->arguments, (Words{"a", "b"}));
    EXPECT_EQ(line->given.at("--seed"), "7");
    EXPECT_EQ(line->given.at("--model"), "x");
    EXPECT_EQ(line->given.at("--stats"), "true");
  }
}

TEST(CommandLine, TakesWordsThatOnlyLookLikeOptionsAsText) {
  const auto line =
      parse_command_line({"run", "-", "-5", "--presence-penalty", "-1", "--", "--seed"});
  ASSERT_TRUE(line.ok()) << line.error().message;
  EXPECT_EQ(line->arguments, (Words{"-", "-5", "--seed"}));
  EXPECT_EQ(line->given.at("--presence-penalty"), "-1");
  EXPECT_EQ(parse_command_line({"run", "--stop="})->given.at("--stop"), "");
}

TEST(CommandLine, OptionsOfOtherCommandsAreUnknown) {
  const auto line = parse_command_line({"run", "--port", "1"});
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(line.error().message.starts_with("'run' has no option '--port'"));
}

TEST(NearestName, FindsTypingMistakesAndBeginnings) {
  const Words names{"run", "render", "serve", "version"};
  EXPECT_EQ(nearest_name("rnu", names), "run");
  EXPECT_EQ(nearest_name("SERVE", names), "serve");
  EXPECT_EQ(nearest_name("vers", names), "version");
  EXPECT_EQ(nearest_name("sevre", names), "serve");
  EXPECT_EQ(nearest_name("xyz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'r'), names), "");
}

TEST(Help, WrapsBetweenWordsWithAnIndent) {
  EXPECT_EQ(wrap_words("one two three four", 9, 2, 0), "one two\n  three\n  four");
  EXPECT_EQ(wrap_words("a-very-long-word b", 5, 1, 1), "a-very-long-word\n b");
  EXPECT_EQ(wrap_words("", 10, 2, 0), "");
}

TEST(Readable, ShowsTextOfAllScriptsAndWritesOutTheRest) {
  EXPECT_EQ(readable(" wörld 日本 🦙"), "\" wörld 日本 🦙\"");
  EXPECT_EQ(readable("a\n\t\"\\\x1b"), R"("a\n\t\"\\\x1b")");
  EXPECT_EQ(readable("\xe6\x97"), R"("\xe6\x97")");
  EXPECT_EQ(readable("\xc2\x9b\xc0\xaf\xed\xa0\x80"), R"("\xc2\x9b\xc0\xaf\xed\xa0\x80")");
}

TEST(FormatCount, GroupsThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(134515008), "134,515,008");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

TEST(CommandLine, TheFieldsOfRequestsAreATopicOfHelp) {
  const auto line = parse_command_line({"help", "api"});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->help && line->api_help);
  EXPECT_EQ(line->command, nullptr);
  EXPECT_FALSE(parse_command_line({"help", "serve"})->api_help);
  EXPECT_FALSE(parse_command_line({"api"}).ok());
}

}  // namespace command_line_test
}  // namespace headrace
