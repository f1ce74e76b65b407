#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/quote.h"
#include "cli/suggest.h"

namespace headrace {
namespace {

const CommandRow* find_command(std::string_view name) {
  for (const CommandRow& row : command_rows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

Error with_hint(Error error, std::string hint) {
  error.hint = std::move(hint);
  return error;
}

Error unknown_command(const std::string& word) {
  if (word.starts_with('-')) {
    return with_hint(make_error(ErrorCode::kInvalidArgument,
                                "the command comes first, and {} is none", quote(word)),
                     "headrace COMMAND [OPTIONS]; headrace --help lists the commands");
  }
  std::vector<std::string> names{"help"};
  for (const CommandRow& row : command_rows()) names.emplace_back(row.name);
  const std::string near = nearest_name(word, names);
  return with_hint(
      make_error(ErrorCode::kInvalidArgument, "there is no command {}{}", quote(word),
                 near.empty() ? std::string() : fmt::format("; did you mean {}?", near)),
      "headrace --help lists the commands");
}

// What other programs of this kind answer to, in the words of our own commands.
std::vector<std::string> expand_shortcuts(std::vector<std::string> words) {
  if (words.empty()) return {"help"};
  std::string& first = words.front();
  if (first == "--help" || first == "-h") first = "help";
  if (first == "--version" || first == "-v" || first == "-V") first = "version";
  if (first == "--list-kernels") words.insert(words.begin(), "version");
  return words;
}

bool looks_like_option(const std::string& word) {
  if (word.size() < 2 || word.front() != '-') return false;
  return word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

// Takes the words behind a command one after the other.
class Parser {
 public:
  Parser(const CommandRow& command, const std::vector<std::string>& words) : words_(words) {
    line_.command = &command;
  }

  Result<CommandLine> parse() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == "--") {
        line_.arguments.insert(line_.arguments.end(), words_.begin() + static_cast<ptrdiff_t>(at_),
                               words_.end());
        break;
      }
      if (looks_like_option(word)) {
        TRY(take_option(word));
      } else {
        line_.arguments.push_back(word);
      }
    }
    if (!line_.help) TRY(check_count());
    return std::move(line_);
  }

 private:
  const OptionRow* find_option(std::string_view name) const {
    for (const OptionRow& row : option_rows()) {
      const bool is_letter = row.letter != 0 && name.size() == 2 && name[1] == row.letter;
      if ((row.name == name || is_letter) && option_applies(row, line_.command->name)) return &row;
    }
    return nullptr;
  }

  Status take_option(const std::string& word) {
    if (word == "--help" || word == "-h") {
      line_.help = true;
      return {};
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const OptionRow* row = find_option(name);
    if (row == nullptr) return unknown_option(name);
    std::string& text = line_.given[std::string(row->name)];
    if (row->kind == OptionKind::kFlag) {
      if (equals != std::string::npos) {
        return make_error(ErrorCode::kInvalidArgument, "{} takes no value, but got {}", row->name,
                          quote(word.substr(equals + 1)));
      }
      text = "true";
      return {};
    }
    if (equals != std::string::npos) {
      text = word.substr(equals + 1);
      return {};
    }
    if (at_ == words_.size()) {
      return make_error(ErrorCode::kInvalidArgument, "{} needs a value{}{}", row->name,
                        row->range.empty() ? "" : " in ", row->range);
    }
    text = words_[at_++];
    return {};
  }

  Error unknown_option(const std::string& name) const {
    std::vector<std::string> names{"--help"};
    for (const OptionRow& row : option_rows()) {
      if (option_applies(row, line_.command->name)) names.emplace_back(row.name);
    }
    const std::string near = nearest_name(name, names);
    return with_hint(
        make_error(ErrorCode::kInvalidArgument, "'{}' has no option {}{}", line_.command->name,
                   quote(name),
                   near.empty() ? std::string() : fmt::format("; did you mean {}?", near)),
        fmt::format("headrace {} --help lists them; after -- every word is an argument",
                    line_.command->name));
  }

  Status check_count() const {
    const CommandRow& command = *line_.command;
    const auto count = static_cast<int>(line_.arguments.size());
    const std::string usage = fmt::format("usage: headrace {}{}{}", command.name,
                                          command.arguments.empty() ? "" : " ", command.arguments);
    if (count < command.min_arguments) {
      return with_hint(
          make_error(ErrorCode::kInvalidArgument, "'{}' needs {}", command.name, command.arguments),
          usage);
    }
    if (command.max_arguments >= 0 && count > command.max_arguments) {
      const std::string& extra = line_.arguments[static_cast<size_t>(command.max_arguments)];
      return with_hint(make_error(ErrorCode::kInvalidArgument, "'{}' has no use for {}",
                                  command.name, quote(extra)),
                       usage);
    }
    return {};
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;
  CommandLine line_;
};

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& given) {
  const std::vector<std::string> words = expand_shortcuts(given);
  CommandLine line;
  if (words.front() == "help") {
    if (words.size() == 1) return line;
    line.help = true;
    line.api_help = words[1] == "api";
    if (line.api_help) return line;
    line.command = find_command(words[1]);
    if (line.command == nullptr && (words[1] == "--help" || words[1] == "help")) return line;
    if (line.command == nullptr) return unknown_command(words[1]);
    return line;
  }
  const CommandRow* command = find_command(words.front());
  if (command == nullptr) return unknown_command(words.front());
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  return Parser(*command, rest).parse();
}

}  // namespace headrace
