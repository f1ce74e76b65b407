// call_values: names and arguments of calls as formats write them in plain text, made JSON by what
// the tools' schemas say.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

// How the value of an argument is written as JSON, where a format writes it as plain text.
enum class ValueType : unsigned char {
  kText,        // a string
  kTextOrNull,  // a string, or null
  kJson,        // what it says, if that is JSON or a Python literal; else a string
};

// The tools that may be called, as a parser needs them. Shared by the choices of an answer.
class CallableTools {
 public:
  struct Declared {
    std::string name;
    std::string schema;  // of its arguments; empty: any object
  };
  explicit CallableTools(const std::vector<Declared>& tools);
  bool has(std::string_view name) const;
  ValueType type_of(std::string_view name, std::string_view key) const;

 private:
  struct Tool {
    std::string name;
    std::vector<std::pair<std::string, ValueType>> arguments;
  };
  std::vector<Tool> tools_;
};

// Without blanks on either side.
std::string_view trimmed(std::string_view text);
// As a JSON string; bytes that are no UTF-8 stay as they are.
std::string quoted(std::string_view text);
// The value as JSON.
std::string value_json(std::string_view value, ValueType type);
// "functions.search:3" is "search".
std::string without_count(std::string name);

}  // namespace headrace
