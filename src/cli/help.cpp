#include "cli/help.h"

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

constexpr int kNamesWidth = 27;  // column at which descriptions begin
constexpr int kNarrow = 60;      // below this they stand under the names instead
constexpr int kNarrowIndent = 6;
constexpr int kCommandWidth = 14;

std::string_view placeholder(const OptionRow& row) {
  switch (row.kind) {
    case OptionKind::kFlag:
      return "";
    case OptionKind::kInteger:
      return " N";
    case OptionKind::kNumber:
      return " NUMBER";
    case OptionKind::kText:
      return " TEXT";
    case OptionKind::kChoice:
      return " NAME";
    case OptionKind::kBytes:
      return " SIZE";
  }
  return "";
}

std::string joined_choices(std::string_view range) {
  std::string text(range);
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at)) {
    text.replace(at, 1, ", ");
  }
  return text;
}

std::string option_names(const OptionRow& row) {
  const std::string letter = row.letter != 0 ? fmt::format("-{}, ", row.letter) : "";
  return fmt::format("{}{}{}", letter, row.name, placeholder(row));
}

std::string options_of(const CommandRow& command, OptionGroup group, int width) {
  std::string text;
  for (const OptionRow& row : option_rows()) {
    if (row.group != group || !option_applies(row, command.name)) continue;
    text += help_entry(option_names(row), describe_option(row), kNamesWidth, width);
  }
  return text.empty() ? text : fmt::format("\n{}:\n{}", group_title(group), text);
}

// Paragraphs are wrapped; lines that begin with a space (examples, tables) stand as they are, and
// wrap with a deeper indent only where they must.
std::string manual_text(std::string_view manual, int width) {
  std::string text;
  while (!manual.empty()) {
    const size_t end = std::min(manual.find('\n'), manual.size());
    const std::string_view line = manual.substr(0, end);
    const size_t spaces = std::min(line.find_first_not_of(' '), line.size());
    if (line == "Examples:") text += "\n";
    if (static_cast<int>(line.size()) <= width) {
      text += std::string(line) + "\n";
    } else {
      const int indent = static_cast<int>(spaces);
      text += std::string(spaces, ' ') +
              wrap_words(line.substr(spaces), width, indent == 0 ? 0 : indent + 4, indent) + "\n";
    }
    manual.remove_prefix(std::min(end + 1, manual.size()));
  }
  return text;
}

}  // namespace

std::string describe_option(const OptionRow& row) {
  std::string text(row.help);
  if (row.kind == OptionKind::kChoice) {
    text += fmt::format(" One of: {}.", joined_choices(row.range));
  } else if (!row.range.empty() && !row.range.ends_with("..")) {
    text += fmt::format(" In {}.", row.range);
  }
  if (!row.value.empty()) text += fmt::format(" Default: {}.", row.value);
  if (!row.unset.empty()) text += fmt::format(" Default: {}.", row.unset);
  if (!row.env.empty()) text += fmt::format(" Environment: {}.", row.env);
  return text;
}

std::string help_entry(const std::string& name, std::string_view description, int column,
                       int width) {
  const int indent = width < kNarrow ? kNarrowIndent : column;
  std::string text = "  " + name;
  if (width < kNarrow || static_cast<int>(text.size()) + 2 > column) {
    text += "\n" + std::string(static_cast<size_t>(indent), ' ');
  } else {
    text.resize(static_cast<size_t>(column), ' ');
  }
  return text + wrap_words(description, width, indent, indent) + "\n";
}

std::string wrap_words(std::string_view text, int width, int indent, int used) {
  std::string result;
  bool first_of_line = true;
  int column = used;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const int needed = static_cast<int>(word.size()) + (first_of_line ? 0 : 1);
    if (!first_of_line && column + needed > width) {
      result += "\n" + std::string(static_cast<size_t>(indent), ' ');
      column = indent;
      first_of_line = true;
    }
    if (!first_of_line) result += ' ';
    result += word;
    column += static_cast<int>(word.size()) + (first_of_line ? 0 : 1);
    first_of_line = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string program_help(int width) {
  std::string text =
      wrap_words("headrace runs and serves language models on the machine you own.", width, 0, 0) +
      "\n\nUsage: headrace COMMAND [OPTIONS]\n\nCommands:\n";
  for (const CommandRow& row : command_rows()) {
    text += help_entry(std::string(row.name), row.summary, kCommandWidth, width);
  }
  text +=
      "\nFirst steps:\n"
      "  headrace pull smollm2:135m\n"
      "  headrace run smollm2:135m \"Why is the sky blue?\"\n"
      "  headrace chat smollm2:135m\n\n";
  return text +
         wrap_words(
             "headrace COMMAND --help is the manual of a command, headrace help api the fields of "
             "requests to a server; --version and --list-kernels show the build.",
             width, 0, 0) +
         "\n";
}

std::string command_help(const CommandRow& command, int width) {
  std::string text =
      wrap_words(fmt::format("Usage: headrace {} {}{}[OPTIONS]", command.name, command.arguments,
                             command.arguments.empty() ? "" : " "),
                 width, 4, 0);
  text += "\n\n" + wrap_words(command.summary, width, 0, 0) + "\n\n";
  text += manual_text(command.manual, width);
  for (int group = 0; group < kNumOptionGroups; ++group) {
    text += options_of(command, static_cast<OptionGroup>(group), width);
  }
  return text;
}

}  // namespace headrace
