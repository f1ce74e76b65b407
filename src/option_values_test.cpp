// Every kind of option: texts that are values, texts that are none, and what a row promises.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "options.h"

namespace headrace {
namespace option_values_test {

OptionRow row_of(OptionKind kind, std::string_view range) {
  OptionRow row{"--x", "", kind, "", range, "run", "Help."};
  return row;
}

struct Value {
  std::string_view text;
  bool good;
};

void expect_values(OptionKind kind, std::string_view range, std::initializer_list<Value> values) {
  for (const Value& value : values) {
    EXPECT_EQ(check_option(row_of(kind, range), value.text).ok(), value.good)
        << "'" << value.text << "' in '" << range << "'";
  }
}

TEST(OptionValues, WholeNumbers) {
  expect_values(OptionKind::kInteger, "-2..10",
                {{"0", true},
                 {"-2", true},
                 {"10", true},
                 {"007", true},
                 {"-3", false},
                 {"11", false},
                 {"", false},
                 {" 1", false},
                 {"1 ", false},
                 {"+1", false},
                 {"1.0", false},
                 {"0x1", false},
                 {"1e0", false},
                 {"--1", false},
                 {"99999999999999999999", false}});
  expect_values(OptionKind::kInteger, "", {{"-9223372036854775808", true}, {"", false}});
}

TEST(OptionValues, Numbers) {
  expect_values(OptionKind::kNumber, "0..1.5",
                {{"0", true},
                 {"1.5", true},
                 {".5", true},
                 {"1e-3", true},
                 {"-0", true},
                 {"1.51", false},
                 {"-0.1", false},
                 {"nan", false},
                 {"inf", false},
                 {"", false},
                 {"1,5", false},
                 {"0.5x", false},
                 {"1e999", false}});
  expect_values(OptionKind::kNumber, "0..", {{"1e300", true}, {"-1", false}});
  expect_values(OptionKind::kNumber, "..0", {{"-1e300", true}, {"0.1", false}});
}

TEST(OptionValues, Sizes) {
  expect_values(OptionKind::kBytes, "1..",
                {{"1", true},
                 {"512K", true},
                 {"512k", true},
                 {"2G", true},
                 {"1T", true},
                 {"0", false},
                 {"0M", false},
                 {"-1M", false},
                 {"1.5G", false},
                 {"M", false},
                 {"", false},
                 {"1MB", false},
                 {"1 M", false},
                 {"16777216T", false}});
}

TEST(OptionValues, Choices) {
  expect_values(OptionKind::kChoice, "auto|avx2|avx512",
                {{"auto", true},
                 {"avx2", true},
                 {"avx512", true},
                 {"avx", false},
                 {"AUTO", false},
                 {"", false},
                 {"auto|avx2", false},
                 {"avx5", false}});
}

TEST(OptionValues, TextsAreAnything) {
  expect_values(OptionKind::kText, "", {{"", true}, {"a b", true}, {"--port", true}});
}

TEST(OptionValues, SwitchesAreTrueOrFalse) {
  expect_values(OptionKind::kFlag, "",
                {{"true", true},
                 {"1", true},
                 {"false", true},
                 {"0", true},
                 {"", false},
                 {"yes", false},
                 {"TRUE", false},
                 {"2", false},
                 {" 1", false}});
}

TEST(OptionValues, SizesCountInPowersOfTwo) {
  struct Case {
    std::string text;
    uint64_t bytes;
  };
  for (const Case& c : std::initializer_list<Case>{{"0", 0},
                                                   {"7", 7},
                                                   {"3K", 3 << 10},
                                                   {"3k", 3 << 10},
                                                   {"5M", 5 << 20},
                                                   {"2G", uint64_t{2} << 30},
                                                   {"8T", uint64_t{8} << 40}}) {
    const auto options = Options::create("serve", {{"--kv-memory", c.text}}, {});
    ASSERT_TRUE(options.ok()) << c.text;
    EXPECT_EQ(options->bytes("--kv-memory"), c.bytes) << c.text;
  }
}

TEST(OptionRows, APromiseOfARowHoldsForEveryCommandItNames) {
  const std::set<std::string> commands = {
      "serve", "run",        "chat",   "pull",    "list",     "rm",     "show", "ps",
      "stop",  "doctor",     "key",    "inspect", "tokenize", "render", "eval", "verify",
      "bench", "completion", "manual", "help",    "version",  "plan",   "lab",  "profile"};
  std::set<std::string_view> variables;
  for (const OptionRow& row : option_rows()) {
    std::istringstream names{std::string(row.commands)};
    int num_commands = 0;
    for (std::string name; names >> name; ++num_commands) {
      EXPECT_TRUE(commands.contains(name)) << row.name << " is for " << name;
      EXPECT_TRUE(option_applies(row, name));
    }
    EXPECT_GT(num_commands, 0) << row.name;
    EXPECT_FALSE(option_applies(row, ""));
    EXPECT_FALSE(option_applies(row, "ser")) << "a part of a name is none";
    EXPECT_TRUE(row.help.ends_with('.')) << row.name;
    if (!row.env.empty()) {
      EXPECT_TRUE(row.env.starts_with("HEADRACE_")) << row.name;
      EXPECT_TRUE(variables.insert(row.env).second) << row.env << " twice";
    }
    EXPECT_EQ(row.kind == OptionKind::kChoice, row.range.find('|') != std::string_view::npos)
        << row.name;
    EXPECT_FALSE(group_title(row.group).empty());
  }
}

TEST(OptionRows, GroupsHaveTitlesOfTheirOwn) {
  std::set<std::string_view> titles;
  for (int group = 0; group < kNumOptionGroups; ++group) {
    titles.insert(group_title(static_cast<OptionGroup>(group)));
  }
  EXPECT_EQ(titles.size(), static_cast<size_t>(kNumOptionGroups));
}

TEST(OptionsCreated, AnEmptyVariableIsNone) {
  ::setenv("HEADRACE_PORT", "", 1);
  const auto options = Options::create("serve", {}, {});
  ::unsetenv("HEADRACE_PORT");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->integer("--port"), 8080);
  EXPECT_FALSE(options->is_set("--port"));
}

TEST(OptionsCreated, AVariableOfAnotherCommandDoesNotMatter) {
  ::setenv("HEADRACE_PORT", "no number", 1);
  EXPECT_TRUE(Options::create("run", {}, {}).ok());
  EXPECT_FALSE(Options::create("serve", {}, {}).ok());
  EXPECT_TRUE(Options::create("serve", {{"--port", "1"}}, {}).ok()) << "what is typed counts";
  ::unsetenv("HEADRACE_PORT");
}

// "1" and "yes" counted as no: a server was refused, or did without, as if nothing had been said.
TEST(OptionsCreated, AVariableOfASwitchSaysTrueOrFalse) {
  for (const auto& [text, means] : {std::pair("true", true), std::pair("1", true),
                                    std::pair("false", false), std::pair("0", false)}) {
    ::setenv("HEADRACE_ADAPTER_UPLOADS", text, 1);
    EXPECT_EQ(Options::create("serve", {}, {})->flag("--adapter-uploads"), means) << text;
  }
  ::setenv("HEADRACE_ADAPTER_UPLOADS", "yes", 1);
  const auto refused = Options::create("serve", {}, {});
  ::unsetenv("HEADRACE_ADAPTER_UPLOADS");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "--adapter-uploads is 'yes', but it must be true, 1, false or 0");
  EXPECT_EQ(refused.error().hint, "the value comes from HEADRACE_ADAPTER_UPLOADS");
}

TEST(OptionsCreated, OneNameMayMeanTwoThingsInTwoCommands) {
  EXPECT_EQ(Options::create("bench", {{"--decode", "8"}}, {})->integer("--decode"), 8);
  EXPECT_TRUE(Options::create("tokenize", {{"--decode", "true"}}, {})->flag("--decode"));
  EXPECT_FALSE(Options::create("tokenize", {}, {})->flag("--decode"));
}

TEST(OptionsCreated, KeepsCommandAndArguments) {
  const auto options = Options::create("run", {}, {"a", "b"});
  EXPECT_EQ(options->command(), "run");
  EXPECT_EQ(options->positionals(), (std::vector<std::string>{"a", "b"}));
}

TEST(OptionsDeathTest, AskingForWhatIsNotInTheTableIsABug) {
  const auto options = Options::create("run", {}, {}).value();
  EXPECT_DEATH((void)options.integer("--port"), "no option --port for command run");
  EXPECT_DEATH((void)options.flag("--seed"), "kind of --seed");
  EXPECT_DEATH((void)options.integer("--seed"), "--seed has no value");
  EXPECT_DEATH((void)Options::create("run", {{"--port", "1"}}, {}), "--port is not in the table");
}

}  // namespace option_values_test
}  // namespace headrace
