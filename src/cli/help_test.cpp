// What --help prints: every option and command where it applies, on screens of any width.
#include "cli/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace headrace {
namespace help_test {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A line may be longer only where one word is, and examples stand as they are.
void expect_fits(const std::string& text, int width) {
  for (const std::string& line : lines_of(text)) {
    if (static_cast<int>(line.size()) <= width || line.starts_with("  headrace ")) continue;
    const size_t begin = line.find_first_not_of(' ');
    EXPECT_EQ(line.find(' ', begin), std::string::npos) << width << ": " << line;
  }
}

TEST(HelpEntry, StandsBesideItsNameWhereThereIsRoom) {
  struct Case {
    std::string name, description;
    int column, width;
    std::string text;
  };
  const Case cases[] = {
      {"pull", "Get a model.", 12, 80, "  pull      Get a model.\n"},
      {"pull", "Get a model of a hub.", 12, 60, "  pull      Get a model of a hub.\n"},
      {"--a-long-name", "Text.", 12, 80, "  --a-long-name\n            Text.\n"},
      {"twelve-ab", "Text.", 12, 80, "  twelve-ab\n            Text.\n"},
      {"pull", "Get a model.", 12, 59, "  pull\n      Get a model.\n"},
      {"pull", "Get it now.", 12, 14, "  pull\n      Get it\n      now.\n"},
      {"x", "", 6, 80, "  x   \n"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(help_entry(c.name, c.description, c.column, c.width), c.text) << c.name;
  }
}

TEST(Help, NamesEveryCommandWithItsSummary) {
  const std::string help = program_help(200);
  for (const CommandRow& row : command_rows()) {
    const std::string line = "  " + std::string(row.name);
    const size_t at = help.find("\n" + line + " ");
    ASSERT_NE(at, std::string::npos) << row.name;
    EXPECT_NE(help.find(row.summary, at), std::string::npos) << row.name;
  }
  EXPECT_NE(help.find("Usage: headrace COMMAND [OPTIONS]"), std::string::npos);
  EXPECT_TRUE(help.ends_with("\n"));
}

TEST(Help, OfACommandListsItsOptionsOnceUnderTheirHeadings) {
  for (const CommandRow& command : command_rows()) {
    const std::string help = command_help(command, 100);
    EXPECT_TRUE(help.starts_with("Usage: headrace " + std::string(command.name))) << command.name;
    for (const OptionRow& row : option_rows()) {
      const std::string name = std::string(row.name);
      size_t count = 0;
      for (const std::string& line : lines_of(help)) {
        const size_t at = line.find(name);
        const bool is_entry = (at == 2 || (at == 6 && line.starts_with("  -"))) &&
                              (line.size() == at + name.size() || line[at + name.size()] == ' ');
        count += is_entry ? 1 : 0;
      }
      const auto rows = option_rows();
      const bool applies = std::any_of(rows.begin(), rows.end(), [&](const OptionRow& other) {
        return other.name == row.name && option_applies(other, command.name);
      });
      EXPECT_EQ(count, applies ? 1u : 0u) << command.name << " " << row.name;
    }
  }
}

TEST(Help, AnOptionSaysItsRangeDefaultAndVariable) {
  const CommandRow* serve = nullptr;
  for (const CommandRow& row : command_rows()) serve = row.name == "serve" ? &row : serve;
  ASSERT_NE(serve, nullptr);
  const std::string help = command_help(*serve, 1000);
  for (const std::string_view part :
       {"  --port N ",
        "Port to listen on; 0 takes a free one and prints it. In 0..65535. Default: "
        "8080. Environment: HEADRACE_PORT.",
        "  -m, --model TEXT ", "  --kv-memory SIZE ", "  --isa NAME ",
        "One of: auto, reference, avx2,", "One of: text, json. Default: text.", "  --quiet "}) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
}

TEST(Help, FitsEveryScreen) {
  for (const int width : {40, 59, 60, 72, 80, 100}) {
    expect_fits(program_help(width), width);
    for (const CommandRow& command : command_rows())
      expect_fits(command_help(command, width), width);
  }
}

TEST(WrapWords, CountsWhatTheFirstLineHoldsAlready) {
  struct Case {
    std::string_view text;
    int width, indent, used;
    std::string wrapped;
  };
  const Case cases[] = {
      {"ab cd", 5, 0, 0, "ab cd"},           {"ab cd", 5, 0, 1, "ab\ncd"},
      {"ab cd", 5, 2, 3, "ab\n  cd"},        {"abcdef", 3, 0, 0, "abcdef"},
      {"abcdef gh", 3, 1, 0, "abcdef\n gh"}, {"a b c d", 3, 0, 0, "a b\nc d"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(wrap_words(c.text, c.width, c.indent, c.used), c.wrapped) << c.text;
  }
}

}  // namespace help_test
}  // namespace headrace
