// Options: every setting of the program is one row of a table.
//
// A row gives name, environment variable, default, range and help; the command line, `--help`, the
// dump in `headrace version --options` and range checks all derive from it. Precedence: command
// line, environment, default. No other file reads an option from anywhere else.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

enum class OptionKind : uint8_t { kFlag, kInteger, kNumber, kText, kChoice, kBytes };

struct OptionRow {
  std::string_view name;  // "--port"
  std::string_view env;   // "HEADRACE_PORT", or empty
  OptionKind kind;
  std::string_view value;     // default, as it would be typed
  std::string_view range;     // "1..65535", or choices "auto|reference|avx2"; empty: any
  std::string_view commands;  // "serve run": where it applies
  std::string_view help;      // one sentence, for the user
};

std::span<const OptionRow> option_rows();

// The options of one command after parsing, and its positional arguments. All values are in range.
class Options {
 public:
  // given: option name -> text, from the command line; environment and defaults fill the rest.
  // kInvalidArgument names the option, the value found and the values allowed.
  static Result<Options> create(std::string_view command,
                                const std::map<std::string, std::string, std::less<>>& given,
                                std::vector<std::string> positionals);

  // CHECK: the row exists for this command and has this kind.
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // also choices
  uint64_t bytes(std::string_view name) const;           // "512M", "2G", "1048576"

  const std::string& command() const { return command_; }
  const std::vector<std::string>& positionals() const { return positionals_; }
  // Was it given on the command line or in the environment?
  bool is_set(std::string_view name) const;

 private:
  const std::string& value_of(std::string_view name, OptionKind kind) const;

  std::string command_;
  std::vector<std::string> positionals_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, bool, std::less<>> set_;
};

// One option's text against its row's kind and range.
Status check_option(const OptionRow& row, std::string_view text);
bool option_applies(const OptionRow& row, std::string_view command);

}  // namespace headrace
