// Options: every setting of the program is one row of a table.
//
// A row gives name, environment variable, default, range and help; the command line, `--help`, the
// dump in `headrace version --options` and range checks all derive from it. Precedence: command
// line, environment, file of settings (cli/config_file.h), default. No other file reads an option
// from anywhere else.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

enum class OptionKind : uint8_t { kFlag, kInteger, kNumber, kText, kChoice, kBytes };

// Under which heading `--help` shows a row; help shows the groups in this order.
enum class OptionGroup : uint8_t {
  kAnswer,
  kServer,
  kOther,
  kModel,
  kPoints,
  kLoad,
  kRandomModel,
  kOutput,
  kMemory,
  kKernels,
};
inline constexpr int kNumOptionGroups = 10;

struct OptionRow {
  std::string_view name;  // "--port"
  std::string_view env;   // "HEADRACE_PORT", or empty
  OptionKind kind;
  std::string_view value;     // default, as it would be typed; empty for a number: there is none
  std::string_view range;     // "1..65535", or choices "auto|reference|avx2"; empty: any
  std::string_view commands;  // "serve run": where it applies
  std::string_view help;      // one sentence, for the user
  OptionGroup group = OptionGroup::kOther;
  std::string_view unset = {};  // what happens without a default: "the model's own, else 0.7"
  char letter = 0;              // 'm' for -m; 0: none
};

std::span<const OptionRow> option_rows();
// "Sampling": the heading of a group.
std::string_view group_title(OptionGroup group);

// Option name -> text.
using OptionTexts = std::map<std::string, std::string, std::less<>>;

// The options of one command after parsing, and its positional arguments. All values are in range.
class Options {
 public:
  // given: from the command line; file: from a file of settings, checked; environment and defaults
  // fill the rest. kInvalidArgument names the option, the value found and the values allowed.
  static Result<Options> create(std::string_view command, const OptionTexts& given,
                                std::vector<std::string> positionals, const OptionTexts& file = {});

  // These, but for one text option, which is set to what its row allows.
  Options with(std::string_view name, std::string value) const;

  // CHECK: the row exists for this command, has this kind and, for a number, a value.
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // also choices
  uint64_t bytes(std::string_view name) const;           // "512M", "2G", "1048576"

  const std::string& command() const { return command_; }
  const std::vector<std::string>& positionals() const { return positionals_; }
  // Was it given on the command line, in the environment or in the file of settings?
  bool is_set(std::string_view name) const;
  // On the command line?
  bool is_typed(std::string_view name) const;

 private:
  const std::string& value_of(std::string_view name, OptionKind kind) const;

  std::string command_;
  std::vector<std::string> positionals_;
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string, std::less<>> set_, typed_;
};

// One option's text against its row's kind and range.
Status check_option(const OptionRow& row, std::string_view text);
bool option_applies(const OptionRow& row, std::string_view command);

}  // namespace headrace
