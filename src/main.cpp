// headrace: the program. Reads the command line (cli/command_line.h) against the tables of commands
// and options, runs one command and sees to it that what it printed arrived. What a server is made
// of, in order, is in cli/serve.cpp.

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_shortage.h"
#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/config_file.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/secrets.h"
#include "cli/terminal.h"
#include "options.h"
#include "server/api/api_page.h"

namespace headrace {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kReaderGone = 128 + 13;  // as if by SIGPIPE

int report(const Error& error) {
  std::fprintf(stderr, "headrace: %s\n", error.to_string().c_str());
  return error.code == ErrorCode::kInvalidArgument ? kWrongUsage : kFailed;
}

Result<int> run_words(const std::vector<std::string>& words) {
  CommandLine line = TRY(parse_command_line(words));
  if (line.command == nullptr || line.help) {
    std::string text = line.api_help ? api_page() : program_help(help_width());
    if (line.command != nullptr) text = command_help(*line.command, help_width());
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  const std::string config = config_file_path();
  OptionTexts file;
  if (!config.empty()) file = TRY(read_config_file(config, line.command->name));
  const Options options =
      TRY(Options::create(line.command->name, line.given, std::move(line.arguments), file));
  return line.command->run(options);
}

int run_program(int argc, char** argv) {
  prepare_standard_streams();
  use_utf8_locale();
  const std::vector<std::string> words(argv + std::min(1, argc), argv + argc);
  hide_secrets(argc, argv);
  const Result<int> ended = run_words(words);
  const int status = ended.ok() ? *ended : report(ended.error());
  const Status output = finish_output();
  if (output.ok() || status != 0) return status;
  return output.error().code == ErrorCode::kUnavailable ? kReaderGone : report(output.error());
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::exit_on_memory_shortage();
  return headrace::run_program(argc, argv);
}
