// manual: a man page and shell completions, made of the tables of commands and options.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

std::string man_page();  // roff, for man(1)
// "bash", "zsh" or "fish"; kInvalidArgument for another shell.
Result<std::string> completion_for(std::string_view shell);

}  // namespace headrace
