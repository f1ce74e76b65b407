// headrace: the program. Reads the command line against the tables of commands (cli/command.cpp)
// and options (options.cpp), then runs one command. What a server is made of, in order, is in
// cli/serve.cpp.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "options.h"

namespace headrace {
namespace {

// What the command line said, per command. Stable addresses: CLI11 writes into them.
struct Parsed {
  CLI::App* app = nullptr;
  std::map<std::string, std::string, std::less<>> texts;
  std::map<std::string, bool, std::less<>> flags;
  std::vector<std::string> positionals;
};

// CLI11's help, with the usage line of our own table.
class CommandFormatter : public CLI::Formatter {
 public:
  explicit CommandFormatter(const CommandRow& command) : command_(command) { column_width(28); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return fmt::format("Usage: headrace {} [OPTIONS] {}\n\n", command_.name, command_.arguments);
  }
  std::string make_positionals(const CLI::App*) const override { return {}; }

 private:
  const CommandRow& command_;
};

std::string describe(const OptionRow& row) {
  std::string text(row.help);
  if (!row.value.empty()) text += fmt::format(" Default: {}.", row.value);
  if (!row.env.empty()) text += fmt::format(" Environment: {}.", row.env);
  return text;
}

std::string range_text(const OptionRow& row) {
  return row.range.empty() ? "TEXT" : std::string(row.range);
}

void add_options(const CommandRow& command, Parsed& parsed) {
  for (const OptionRow& row : option_rows()) {
    if (!option_applies(row, command.name)) continue;
    const std::string name(row.name);
    if (row.kind == OptionKind::kFlag) {
      parsed.app->add_flag(name, parsed.flags[name], describe(row));
    } else {
      parsed.app->add_option(name, parsed.texts[name], describe(row))->type_name(range_text(row));
    }
  }
  if (command.max_arguments != 0) {
    auto* positionals =
        parsed.app->add_option("arguments", parsed.positionals, std::string(command.arguments));
    positionals->expected(command.min_arguments, command.max_arguments < 0
                                                     ? CLI::detail::expected_max_vector_size
                                                     : command.max_arguments);
    positionals->required(command.min_arguments > 0)->type_name("");
  }
}

void add_command(CLI::App& program, const CommandRow& command, Parsed& parsed) {
  parsed.app = program.add_subcommand(std::string(command.name), std::string(command.summary));
  parsed.app->formatter(std::make_shared<CommandFormatter>(command));
  parsed.app->footer(std::string(command.manual));
  add_options(command, parsed);
}

// The options that were really given: texts that are not empty or were typed, flags that are on.
std::map<std::string, std::string, std::less<>> given_options(const Parsed& parsed) {
  std::map<std::string, std::string, std::less<>> given;
  for (const auto& [name, text] : parsed.texts) {
    if (parsed.app->get_option(name)->count() > 0) given[name] = text;
  }
  for (const auto& [name, on] : parsed.flags) {
    if (on) given[name] = "true";
  }
  return given;
}

int report(const Error& error) {
  std::fprintf(stderr, "headrace: %s\n", error.to_string().c_str());
  return error.code == ErrorCode::kInvalidArgument ? 2 : 1;
}

int run_command(const CommandRow& command, const Parsed& parsed) {
  auto options = Options::create(command.name, given_options(parsed), parsed.positionals);
  if (!options.ok()) return report(options.error());
  const Result<int> status = command.run(*options);
  return status.ok() ? *status : report(status.error());
}

// What other programs of this kind answer to, in the words of our own commands.
std::vector<std::string> expand_shortcuts(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return {"--help"};
  if (words.front() == "--version") return {"version"};
  if (words.front() == "--list-kernels") words.insert(words.begin(), "version");
  return words;
}

int run_program(int argc, char** argv) {
  CLI::App program("headrace runs and serves language models on the machine you own.", "headrace");
  program.require_subcommand(1);
  program.footer(
      "`headrace COMMAND --help` is the manual of a command.\n"
      "headrace --list-kernels, --version: as the command version says.");
  std::map<std::string_view, Parsed> parsed;
  for (const CommandRow& command : command_rows()) {
    add_command(program, command, parsed[command.name]);
  }
  std::vector<std::string> words = expand_shortcuts(argc, argv);
  std::reverse(words.begin(), words.end());  // the order in which CLI11 takes a vector
  try {
    program.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  }
  for (const CommandRow& command : command_rows()) {
    if (parsed[command.name].app->parsed()) return run_command(command, parsed[command.name]);
  }
  return 2;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::run_program(argc, argv); }
