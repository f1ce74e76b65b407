// What a file of settings gives each command, and what is said of one that is wrong.
#include "cli/config_file.h"

#include <gtest/gtest.h>

#include "base/testing/temp_folder.h"

namespace headrace {
namespace config_file_test {

using testing::TempFolder;

OptionTexts settings(const std::string& contents, std::string_view command) {
  const TempFolder folder;
  auto read = read_config_file(folder.write("config.toml", contents), command);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return read.ok() ? *read : OptionTexts();
}

std::string problem(const std::string& contents) {
  const TempFolder folder;
  const auto read = read_config_file(folder.write("config.toml", contents), "serve");
  EXPECT_FALSE(read.ok()) << contents;
  if (read.ok()) return {};
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  const std::string& message = read.error().message;
  return message.substr(message.find("line"));
}

TEST(ConfigFile, KeysGoToTheCommandsThatHaveThem) {
  const std::string contents =
      "model = \"gemma3:270m\"\nthreads = 2\ntemperature = 0.5\n"
      "[serve]\nport = 9000\nalias = [\"a\", \"b\"]\nthreads = 1\n[run]\nquiet = true\n";
  EXPECT_EQ(
      settings(contents, "serve"),
      (OptionTexts{
          {"--alias", "a,b"}, {"--model", "gemma3:270m"}, {"--port", "9000"}, {"--threads", "1"}}));
  EXPECT_EQ(settings(contents, "run"), (OptionTexts{{"--model", "gemma3:270m"},
                                                    {"--quiet", "true"},
                                                    {"--temperature", "0.5"},
                                                    {"--threads", "2"}}));
  EXPECT_EQ(settings(contents, "version"), (OptionTexts{{"--threads", "2"}}));
  EXPECT_TRUE(settings("", "serve").empty());
}

TEST(ConfigFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(problem("port = 9000\nprot = 1\n"), "line 2: there is no option 'prot', but port");
  EXPECT_EQ(problem("[serve]\ntemperature = 1\n").substr(0, 50),
            "line 2: there is no option 'temperature' of serve");
  EXPECT_EQ(problem("[surf]\nport = 1\n"), "line 1: there is no command 'surf'");
  EXPECT_EQ(problem("port = 70000\n").substr(0, 41), "line 1: --port is '70000', but it must be");
  EXPECT_EQ(problem("port = 1979-05-27\n"),
            "line 1: port is neither text, a number, true or false, nor a list");
  EXPECT_EQ(problem("port = = 1\n").substr(0, 7), "line 1:");
}

TEST(ConfigFile, CommandLineAndEnvironmentGoBeforeIt) {
  const OptionTexts file{{"--port", "9000"}, {"--alias", "a"}, {"--max-waiting", "7"}};
  setenv("HEADRACE_ALIAS", "from-environment", 1);
  const auto options = Options::create("serve", {{"--port", "9001"}}, {}, file);
  unsetenv("HEADRACE_ALIAS");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->integer("--port"), 9001);
  EXPECT_EQ(options->text("--alias"), "from-environment");
  EXPECT_EQ(options->integer("--max-waiting"), 7);
  EXPECT_TRUE(options->is_set("--max-waiting"));
  EXPECT_FALSE(options->is_typed("--max-waiting"));
}

TEST(ConfigFile, ANamedFileMustBeThere) {
  const auto read = read_config_file("/nonexistent/config.toml", "serve");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kNotFound);
}

}  // namespace config_file_test
}  // namespace headrace
