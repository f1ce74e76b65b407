// help: what `--help` prints, made of the tables of commands and options.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"

namespace headrace {

// Texts for a screen of `width` columns; no line is longer unless one word is, or it is an example.
// End in a newline.
std::string program_help(int width);
std::string command_help(const CommandRow& command, int width);

// What an option does, its choices or range, default and environment variable.
std::string describe_option(const OptionRow& row);

// A name and its description side by side, the descriptions at `column`; on a narrow screen, or if
// the name is long, one under the other. Ends in a newline.
std::string help_entry(const std::string& name, std::string_view description, int column,
                       int width);

// `text` in lines of at most `width` columns; all but the first begin with `indent` spaces, and the
// first has `used` columns already. Breaks at spaces only. No newline at the end.
std::string wrap_words(std::string_view text, int width, int indent, int used);

}  // namespace headrace
