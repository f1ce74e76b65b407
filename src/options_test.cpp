#include "options.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace options_test {

using Given = std::map<std::string, std::string, std::less<>>;

std::string error_of(std::string_view command, const Given& given) {
  const auto options = Options::create(command, given, {});
  return options.ok() ? "" : options.error().message;
}

TEST(Options, DefaultsAreInRangeForEveryCommand) {
  int num_checked = 0;
  for (const OptionRow& row : option_rows()) {
    EXPECT_TRUE(row.name.starts_with("--")) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    if (row.value.empty()) {
      const bool is_number = row.kind == OptionKind::kInteger || row.kind == OptionKind::kNumber;
      EXPECT_EQ(is_number, !row.unset.empty()) << row.name;
    } else {
      EXPECT_TRUE(check_option(row, row.value).ok()) << row.name;
    }
    ++num_checked;
  }
  EXPECT_GT(num_checked, 40);
}

TEST(Options, NoCommandHasTwoRowsOfOneName) {
  for (const std::string_view command :
       {"serve", "run", "chat", "pull", "inspect", "tokenize", "render", "eval", "verify", "bench",
        "version", "profile"}) {
    std::set<std::string_view> names;
    for (const OptionRow& row : option_rows()) {
      if (!option_applies(row, command)) continue;
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
    }
  }
}

TEST(Options, ACopyWithOneOptionChangedKeepsTheOthers) {
  const auto options = Options::create("eval", {{"--window", "64"}}, {"perplexity"});
  ASSERT_TRUE(options.ok());
  const Options changed = options->with("--kv-type", "f32");
  EXPECT_EQ(changed.text("--kv-type"), "f32");
  EXPECT_EQ(changed.integer("--window"), 64);
  EXPECT_EQ(changed.positionals(), options->positionals());
  EXPECT_EQ(options->text("--kv-type"), "auto");
}

TEST(Options, CommandLineWinsOverEnvironmentWinsOverDefault) {
  ::unsetenv("HEADRACE_PORT");
  EXPECT_EQ(Options::create("serve", {}, {})->integer("--port"), 8080);
  EXPECT_FALSE(Options::create("serve", {}, {})->is_set("--port"));
  ::setenv("HEADRACE_PORT", "9001", 1);
  EXPECT_EQ(Options::create("serve", {}, {})->integer("--port"), 9001);
  EXPECT_EQ(Options::create("serve", {{"--port", "9002"}}, {})->integer("--port"), 9002);
  ::unsetenv("HEADRACE_PORT");
}

TEST(Options, RefusesValuesOutsideTheRangeByName) {
  EXPECT_EQ(error_of("serve", {{"--port", "70000"}}),
            "--port is '70000', but it must be a whole number in 0..65535");
  EXPECT_EQ(error_of("serve", {{"--port", "80x"}}),
            "--port is '80x', but it must be a whole number in 0..65535");
  EXPECT_EQ(error_of("run", {{"--temperature", "nan"}}),
            "--temperature is 'nan', but it must be a number in 0..100");
  EXPECT_EQ(error_of("run", {{"--temperature", "-1"}}),
            "--temperature is '-1', but it must be a number in 0..100");
  EXPECT_EQ(error_of("run", {{"--isa", "mmx"}}),
            "--isa is 'mmx', but it must be one of the choices in "
            "auto|reference|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx|amx_integer");
  EXPECT_EQ(error_of("serve", {{"--kv-memory", "2 cows"}}),
            "--kv-memory is '2 cows', but it must be a size such as 512M or 2G in 0..");
}

TEST(Options, WrongValueOfTheEnvironmentNamesTheVariable) {
  ::setenv("HEADRACE_PORT", "80x", 1);
  const auto options = Options::create("serve", {}, {});
  ::unsetenv("HEADRACE_PORT");
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.error().to_string(),
            "--port is '80x', but it must be a whole number in 0..65535 (the value comes from "
            "HEADRACE_PORT)");
}

TEST(Options, ReadsSizesWithUnits) {
  const auto bytes = [](const std::string& text) {
    return Options::create("serve", {{"--kv-memory", text}}, {})->bytes("--kv-memory");
  };
  EXPECT_EQ(bytes("4096"), 4096u);
  EXPECT_EQ(bytes("512M"), 512u << 20);
  EXPECT_EQ(bytes("2g"), uint64_t{2} << 30);
  EXPECT_EQ(error_of("serve", {{"--kv-memory", "99999999999999999T"}}),
            "--kv-memory is '99999999999999999T', but it must be a size such as 512M or 2G in 0..");
}

TEST(Options, NumberWithoutDefaultIsUnsetUntilGiven) {
  EXPECT_FALSE(Options::create("run", {}, {})->is_set("--temperature"));
  const auto options = Options::create("run", {{"--temperature", "0.5"}}, {});
  EXPECT_TRUE(options->is_set("--temperature"));
  EXPECT_EQ(options->number("--temperature"), 0.5);
  EXPECT_EQ(error_of("run", {{"--temperature", ""}}),
            "--temperature is '', but it must be a number in 0..100");
}

TEST(Options, TypedIsTheCommandLineOnly) {
  ::setenv("HEADRACE_MODEL", "here.gguf", 1);
  const auto environment = Options::create("run", {}, {});
  EXPECT_TRUE(environment->is_set("--model"));
  EXPECT_FALSE(environment->is_typed("--model"));
  ::unsetenv("HEADRACE_MODEL");
  EXPECT_TRUE(Options::create("run", {{"--model", "x"}}, {})->is_typed("--model"));
}

TEST(Options, WholeRangeOfTheSeedIsExact) {
  const auto options = Options::create("run", {{"--seed", "9223372036854775807"}}, {});
  EXPECT_EQ(options->integer("--seed"), 9223372036854775807);
}

}  // namespace options_test
}  // namespace headrace
