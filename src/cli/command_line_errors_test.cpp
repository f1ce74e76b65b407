// Command lines that do not fit: which word, what was probably meant, where to read more.
#include <gtest/gtest.h>

#include "cli/command_line.h"

namespace headrace {
namespace command_line_errors_test {

using Words = std::vector<std::string>;

struct WrongLine {
  Words words;
  std::string message, hint;
};

void expect_refused(const WrongLine& wrong) {
  const auto line = parse_command_line(wrong.words);
  ASSERT_FALSE(line.ok()) << wrong.message;
  EXPECT_EQ(line.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(line.error().message, wrong.message);
  EXPECT_EQ(line.error().hint, wrong.hint) << wrong.message;
}

TEST(CommandLineErrors, Commands) {
  const std::string lists = "headrace --help lists the commands";
  for (const WrongLine& wrong : std::initializer_list<WrongLine>{
           {{"srve"}, "there is no command 'srve'; did you mean serve?", lists},
           {{"Serve"}, "there is no command 'Serve'; did you mean serve?", lists},
           {{"tokenise", "x"}, "there is no command 'tokenise'; did you mean tokenize?", lists},
           {{"hlep"}, "there is no command 'hlep'; did you mean help?", lists},
           {{"quantize"}, "there is no command 'quantize'", lists},
           {{""}, "there is no command ''", lists},
           {{"a\nb"}, "there is no command 'a\\x0ab'", lists},
           {{"help", "srve"}, "there is no command 'srve'; did you mean serve?", lists},
           {{"--port", "1", "serve"},
            "the command comes first, and '--port' is none",
            "headrace COMMAND [OPTIONS]; headrace --help lists the commands"},
           {{"-m", "x", "run"},
            "the command comes first, and '-m' is none",
            "headrace COMMAND [OPTIONS]; headrace --help lists the commands"},
       }) {
    expect_refused(wrong);
  }
}

TEST(CommandLineErrors, Options) {
  const auto lists = [](const std::string& command) {
    return "headrace " + command + " --help lists them; after -- every word is an argument";
  };
  for (const WrongLine& wrong : std::initializer_list<WrongLine>{
           {{"run", "--temprature", "1"},
            "'run' has no option '--temprature'; did you mean --temperature?",
            lists("run")},
           {{"run", "--temp=1"},
            "'run' has no option '--temp'; did you mean --temperature?",
            lists("run")},
           {{"serve", "--Port", "1"},
            "'serve' has no option '--Port'; did you mean --port?",
            lists("serve")},
           {{"pull", "x", "--hlep"},
            "'pull' has no option '--hlep'; did you mean --help?",
            lists("pull")},
           {{"run", "--frobnicate-everything"},
            "'run' has no option '--frobnicate-everything'",
            lists("run")},
           {{"pull", "x", "-m", "y"}, "'pull' has no option '-m'", lists("pull")},
           {{"run", "-x"}, "'run' has no option '-x'", lists("run")},
       }) {
    expect_refused(wrong);
  }
}

TEST(CommandLineErrors, Values) {
  for (const WrongLine& wrong : std::initializer_list<WrongLine>{
           {{"run", "--seed"}, "--seed needs a value in 0..9223372036854775807", ""},
           {{"run", "a", "--system"}, "--system needs a value", ""},
           {{"run", "-m"}, "--model needs a value", ""},
           {{"serve", "--log-format"}, "--log-format needs a value in text|json", ""},
           {{"run", "--stats=yes"}, "--stats takes no value, but got 'yes'", ""},
           {{"run", "--stats="}, "--stats takes no value, but got ''", ""},
       }) {
    expect_refused(wrong);
  }
}

TEST(CommandLineErrors, NumbersOfArguments) {
  for (const WrongLine& wrong : std::initializer_list<WrongLine>{
           {{"pull"}, "'pull' needs NAME", "usage: headrace pull NAME"},
           {{"pull", "a", "b"}, "'pull' has no use for 'b'", "usage: headrace pull NAME"},
           {{"version", "now"}, "'version' has no use for 'now'", "usage: headrace version"},
           {{"inspect", "a", "b", "c"},
            "'inspect' has no use for 'b'",
            "usage: headrace inspect [MODEL]"},
           {{"verify"},
            "'verify' needs KIND ARGUMENTS...",
            "usage: headrace verify KIND ARGUMENTS..."},
           {{"pull", "a", "--", "--help"},
            "'pull' has no use for '--help'",
            "usage: headrace pull NAME"},
       }) {
    expect_refused(wrong);
  }
}

TEST(CommandLineShortcuts, AnswerToWhatOtherProgramsAnswerTo) {
  for (const Words& words :
       {Words{}, {"help"}, {"--help"}, {"-h"}, {"help", "help"}, {"help", "--help"}}) {
    const auto line = parse_command_line(words);
    ASSERT_TRUE(line.ok());
    EXPECT_EQ(line->command, nullptr) << "the help of the program";
  }
  for (const Words& words : {Words{"version"}, {"--version"}, {"-v"}, {"-V"}}) {
    EXPECT_EQ(parse_command_line(words)->command->name, "version");
  }
  const auto kernels = parse_command_line({"--list-kernels", "--isa", "reference"});
  ASSERT_TRUE(kernels.ok());
  EXPECT_EQ(kernels->command->name, "version");
  EXPECT_EQ(kernels->given.at("--list-kernels"), "true");
  EXPECT_EQ(kernels->given.at("--isa"), "reference");
}

TEST(CommandLineShortcuts, HelpOfACommandNeedsNoArguments) {
  for (const Words& words : {Words{"help", "pull"},
                             {"pull", "--help"},
                             {"pull", "-h"},
                             {"pull", "a", "b", "c", "--help"}}) {
    const auto line = parse_command_line(words);
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->help);
    EXPECT_EQ(line->command->name, "pull");
  }
}

}  // namespace command_line_errors_test
}  // namespace headrace
