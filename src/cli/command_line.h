// The command line against the tables of commands (command.h) and options (options.h).
//
// headrace COMMAND [WORDS and OPTIONS in any order]. An option is `--name VALUE`, `--name=VALUE` or
// `-m VALUE`; after `--` every word is an argument. `-`, and what begins like a negative number, is
// an argument too. Of an option that is given twice the last counts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace headrace {

struct CommandLine {
  const CommandRow* command = nullptr;  // null: the help of the program is asked for
  bool help = false;                    // of the command
  bool api_help = false;                // of the fields of requests
  std::map<std::string, std::string, std::less<>> given;  // option name -> text; flags "true"
  std::vector<std::string> arguments;
};

// kInvalidArgument names the word that does not fit, and the nearest that would.
Result<CommandLine> parse_command_line(const std::vector<std::string>& words);

}  // namespace headrace
