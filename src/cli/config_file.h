// config_file: settings that hold for every start, in a TOML file: HEADRACE_CONFIG, else
// config.toml in headrace/ of the user's configuration folder (XDG_CONFIG_HOME, ~/.config).
//
//     model = "qwen2.5-coder:0.5b"     # an option without its dashes, for every command that has
//     it [serve]                          # for one command port = 9000 alias = ["coder", "small"]
//     # a list, as with commas
//
// The command line goes before the environment, the environment before the file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "options.h"

namespace headrace {

// The file's path; empty: there is none, and none was named.
std::string config_file_path();

// Its settings for one command: option name ("--port") -> text. kNotFound if the named file is not
// there; kInvalidArgument with line and reason if it is no TOML, names what is no option of any
// command, or gives a value of the wrong kind. A key of [serve] that only others have is refused.
Result<OptionTexts> read_config_file(const std::string& path, std::string_view command);

}  // namespace headrace
