#include "cli/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/suggest.h"

#include <toml++/toml.h>

namespace headrace {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Reads one file for one command.
class ConfigReader {
 public:
  ConfigReader(const std::string& path, std::string_view command)
      : path_(path), command_(command) {}

  Result<OptionTexts> read(const toml::table& table) {
    for (auto&& [key, node] : table) {
      if (!node.is_table()) TRY(add(key.str(), node, {}));
    }
    for (auto&& [key, node] : table) {  // after the others: they go before them
      if (node.is_table()) TRY(read_section(key.str(), *node.as_table()));
    }
    return std::move(texts_);
  }

 private:
  Error wrong(const toml::node& node, std::string_view what) const {
    return make_error(ErrorCode::kInvalidArgument, "{}, line {}: {}", path_,
                      node.source().begin.line, what);
  }

  Status read_section(std::string_view section, const toml::table& table) {
    const auto rows = command_rows();
    const bool known = std::any_of(rows.begin(), rows.end(),
                                   [&](const CommandRow& row) { return row.name == section; });
    if (!known) return wrong(table, fmt::format("there is no command '{}'", section));
    for (auto&& [key, node] : table) TRY(add(key.str(), node, section));
    return {};
  }

  // section: empty outside of one.
  Status add(std::string_view key, const toml::node& node, std::string_view section) {
    const std::string name = "--" + std::string(key);
    std::vector<std::string> names;
    for (const OptionRow& row : option_rows()) {
      if (section.empty() || option_applies(row, section)) names.emplace_back(row.name);
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string near = nearest_name(name, names);
      return wrong(node, fmt::format("there is no option '{}'{}{}", key,
                                     section.empty() ? "" : fmt::format(" of {}", section),
                                     near.empty() ? "" : ", but " + near.substr(2)));
    }
    std::string text = TRY(text_of(node, key));
    if (!section.empty() && section != command_) return {};
    for (const OptionRow& row : option_rows()) {
      if (row.name != name || !option_applies(row, command_)) continue;
      if (const Status status = check_option(row, text); !status.ok()) {
        return wrong(node, status.error().message);
      }
      texts_[name] = std::move(text);
      break;
    }
    return {};
  }

  Result<std::string> text_of(const toml::node& node, std::string_view key) const {
    if (const auto text = node.value_exact<std::string>()) return *text;
    if (const auto number = node.value_exact<int64_t>()) return fmt::format("{}", *number);
    if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
    if (const auto choice = node.value_exact<bool>())
      return std::string(*choice ? "true" : "false");
    const toml::array* list = node.as_array();
    if (list == nullptr) {
      return wrong(node,
                   fmt::format("{} is neither text, a number, true or false, nor a list", key));
    }
    std::string joined;
    for (auto&& each : *list) {
      joined += fmt::format("{}{}", joined.empty() ? "" : ",", TRY(text_of(each, key)));
    }
    return joined;
  }

  const std::string& path_;
  const std::string_view command_;
  OptionTexts texts_;
};

}  // namespace

std::string config_file_path() {
  const std::string named = environment("HEADRACE_CONFIG");
  if (!named.empty()) return named;
  std::string folder = environment("XDG_CONFIG_HOME");
  if (folder.empty() && !environment("HOME").empty()) folder = environment("HOME") + "/.config";
  if (folder.empty()) return {};
  const std::string path = folder + "/headrace/config.toml";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : std::string();
}

Result<OptionTexts> read_config_file(const std::string& path, std::string_view command) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    Error error = make_error(ErrorCode::kNotFound, "there is no file '{}'", path);
    error.hint = "HEADRACE_CONFIG names it: unset that, or write the file";
    return error;
  }
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    return make_error(ErrorCode::kInvalidArgument, "{}, line {}: {}", path,
                      parsed.error().source().begin.line, parsed.error().description());
  }
  return ConfigReader(path, command).read(parsed.table());
}

}  // namespace headrace
