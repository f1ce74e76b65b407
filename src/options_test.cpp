#include "options.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

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
    EXPECT_TRUE(check_option(row, row.value).ok()) << row.name;
    ++num_checked;
  }
  EXPECT_GT(num_checked, 40);
}

TEST(Options, NoCommandHasTwoRowsOfOneName) {
  for (const std::string_view command : {"serve", "run", "chat", "pull", "inspect", "tokenize",
                                         "render", "eval", "verify", "bench", "version"}) {
    std::set<std::string_view> names;
    for (const OptionRow& row : option_rows()) {
      if (!option_applies(row, command)) continue;
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
    }
  }
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
            "auto|reference|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx");
  EXPECT_EQ(error_of("serve", {{"--kv-memory", "2 cows"}}),
            "--kv-memory is '2 cows', but it must be a size such as 512M or 2G in 0..");
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

TEST(Options, WholeRangeOfTheSeedIsExact) {
  const auto options = Options::create("run", {{"--seed", "9223372036854775807"}}, {});
  EXPECT_EQ(options->integer("--seed"), 9223372036854775807);
}

}  // namespace
}  // namespace headrace
