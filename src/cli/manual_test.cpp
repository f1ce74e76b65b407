// The man page and the completions: whole, well formed, and of use to a real shell.
#include "cli/manual.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "base/testing/temp_folder.h"
#include "cli/command.h"

namespace headrace {
namespace manual_test {

using testing::TempFolder;

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What bash prints for a script that has the completion loaded.
std::string bash_says(const std::string& script) {
  const TempFolder folder;
  const std::string completion = folder.write("completion", completion_for("bash").value());
  const std::string file = folder.write("script", ". '" + completion + "'\n" + script);
  std::string out;
  FILE* pipe = popen(("PATH=/usr/bin:/bin bash '" + file + "' 2>&1").c_str(), "r");
  if (pipe == nullptr) return "no pipe";
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  pclose(pipe);
  return out;
}

// What is offered for the last word.
std::string offered(const std::string& words) {
  return bash_says("COMP_WORDS=(" + words +
                   ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_headrace\necho \"${COMPREPLY[@]}\"");
}

TEST(ManPage, HoldsEveryCommandAndEveryOption) {
  const std::string page = man_page();
  EXPECT_TRUE(page.starts_with(".TH HEADRACE 1\n.SH NAME\nheadrace \\- "));
  for (const CommandRow& row : command_rows()) {
    const std::string title = fmt::format("\n.SS headrace {}", row.name);
    const size_t at = page.find(title);
    ASSERT_NE(at, std::string::npos) << row.name;
    EXPECT_TRUE(page[at + title.size()] == ' ' || page[at + title.size()] == '\n') << row.name;
  }
  for (const OptionRow& row : option_rows()) {
    std::string name;
    for (const char c : row.name) name += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_NE(page.find("\n.TP\n.B " + name + "\n"), std::string::npos) << row.name;
  }
}

// A line of text that began like a command of roff would be swallowed without a word.
TEST(ManPage, OnlyKnownMacrosBeginLines) {
  bool is_verbatim = false;
  for (const std::string& line : rows_of(man_page())) {
    EXPECT_FALSE(line.starts_with('\'')) << line;
    if (!line.starts_with('.')) {
      // Examples stand between .nf and .fi, and nothing else does.
      EXPECT_EQ(line.starts_with(' '), is_verbatim) << line;
      continue;
    }
    const std::string macro = line.substr(0, line.find(' '));
    constexpr std::string_view kMacros[] = {".TH", ".SH", ".SS", ".B", ".TP", ".PP", ".nf", ".fi"};
    EXPECT_NE(std::find(std::begin(kMacros), std::end(kMacros), macro), std::end(kMacros)) << line;
    if (macro != ".nf" && macro != ".fi") continue;
    EXPECT_EQ(is_verbatim, macro == ".fi") << line;
    is_verbatim = macro == ".nf";
  }
  EXPECT_FALSE(is_verbatim);
}

TEST(ManPage, BackslashesOnlyEscape) {
  const std::string page = man_page();
  for (size_t at = 0; (at = page.find('\\', at)) != std::string::npos; at += 2) {
    ASSERT_LT(at + 1, page.size());
    EXPECT_NE(std::string_view("-e&").find(page[at + 1]), std::string_view::npos)
        << page.substr(at, 40);
  }
}

TEST(Completion, OfAnUnknownShellNamesThoseThereAre) {
  for (const char* shell : {"csh", "", "BASH", "bash "}) {
    const auto text = completion_for(shell);
    ASSERT_FALSE(text.ok()) << shell;
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(text.error().message,
              fmt::format("there is no completion for '{}', only for bash, zsh and fish", shell));
  }
}

TEST(Completion, BashOffersCommandsFirst) {
  EXPECT_EQ(offered("headrace serv"), "serve\n");
  EXPECT_EQ(offered("headrace zzz"), "\n");
  std::string all;
  for (const CommandRow& row : command_rows()) all += std::string(row.name) + " ";
  all.back() = '\n';
  EXPECT_EQ(offered("headrace ''"), all);
}

TEST(Completion, BashOffersTheOptionsOfTheCommandAlone) {
  EXPECT_EQ(offered("headrace serve --tls-c"), "--tls-cert\n");
  EXPECT_EQ(offered("headrace run --tls-c"), "\n");
  EXPECT_EQ(offered("headrace key --sc"), "--scopes\n");
  EXPECT_EQ(offered("headrace key --he"), "--help\n");
  for (const CommandRow& row : command_rows()) {
    const std::string offer = " " + offered(fmt::format("headrace {} --", row.name));
    for (const OptionRow& option : option_rows()) {
      const bool is_offered = offer.find(fmt::format(" {} ", option.name)) != std::string::npos;
      if (option_applies(option, row.name)) {
        EXPECT_TRUE(is_offered) << row.name << option.name;
      }
    }
  }
}

TEST(Completion, BashOffersTheChoicesOfAnOption) {
  EXPECT_EQ(offered("headrace serve --kv-events-form ''"), "maps arrays\n");
  EXPECT_EQ(offered("headrace serve --kv-events-form a"), "arrays\n");
  EXPECT_EQ(offered("headrace run --isa ref"), "reference\n");
}

// `headrace list --json` is asked; names hold colons.
TEST(Completion, BashOffersTheModelsThatAreThere) {
  const std::string list =
      "headrace() { echo '{\"name\":\"smollm2:135m\",\"path\":\"/p\"}';"
      " echo '{\"name\":\"hf:org/repo\",\"path\":\"/name\"}'; }\n";
  EXPECT_EQ(bash_says(list + "COMP_WORDS=(headrace run hf)\nCOMP_CWORD=2\n_headrace\n"
                             "echo \"${COMPREPLY[@]}\""),
            "hf:org/repo\n");
  // Where the program fails, nothing is offered and its complaints are not shown.
  EXPECT_EQ(bash_says("headrace() { echo broken >&2; return 1; }\nCOMP_WORDS=(headrace run br)\n"
                      "COMP_CWORD=2\n_headrace\necho \"${COMPREPLY[@]}\""),
            "\n");
}

TEST(Completion, OfZshIsThatOfBashBehindItsOwnBeginning) {
  const std::string zsh = completion_for("zsh").value();
  EXPECT_TRUE(zsh.starts_with("#compdef headrace\nautoload -U +X bashcompinit && bashcompinit\n"));
  EXPECT_TRUE(zsh.ends_with(completion_for("bash").value()));
}

TEST(Completion, OfFishHasALineForEachCommandAndOption) {
  const std::string fish = completion_for("fish").value();
  for (const CommandRow& row : command_rows()) {
    EXPECT_NE(fish.find(fmt::format("-n __fish_use_subcommand -f -a {} -d '", row.name)),
              std::string::npos)
        << row.name;
  }
  EXPECT_NE(fish.find("'__fish_seen_subcommand_from serve' -l kv-events-form -r -f -a "
                      "'maps arrays' -d '"),
            std::string::npos);
  EXPECT_NE(fish.find("'__fish_seen_subcommand_from serve' -l quiet -d '"), std::string::npos);
  EXPECT_EQ(fish.find("'__fish_seen_subcommand_from run' -l tls-cert"), std::string::npos);
  for (const std::string& line : rows_of(fish)) {
    EXPECT_TRUE(line.starts_with("complete -c headrace ") || line.starts_with("#")) << line;
    std::string plain = line;
    for (size_t at = 0; (at = plain.find("\\'", at)) != std::string::npos;) plain.erase(at, 2);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), '\'') % 2, 0) << line;
  }
}

}  // namespace manual_test
}  // namespace headrace
