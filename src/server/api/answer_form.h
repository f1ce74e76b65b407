// answer_form: what an answer is held to, in no client's language: a structure, the tools that it
// may call, how much it reasons. A dialect fills it in; what it means for the model (a constraint,
// a parser of parts, variables of the template) is made of it once for all dialects. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headrace {

// The form of the text.
struct Structure {
  enum class Kind : uint8_t {
    kNone,
    kJsonObject,  // any JSON object
    kJsonSchema,  // text: the schema
    kRegex,       // text: a regular expression that the whole answer matches
    kChoice,      // text: a JSON list of strings, one of which is the answer
    kGrammar,     // text: Lark, or the EBNF of GGUF tools
    kTags,        // text: JSON, parts between marks that hold to schemas (structural tags)
  };
  Kind kind = Kind::kNone;
  std::string text;
  std::string param;  // the field that errors name: "response_format.json_schema.schema"
};

struct ToolFunction {
  std::string name;
  std::string description;
  std::string parameters;          // JSON schema of its arguments; empty: any object
  bool strict = false;             // as the client said; arguments hold to the schema either way
  std::string input_grammar = {};  // Lark that `input`, its one argument, holds to; empty: none
};

struct ToolChoice {
  enum class Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // kNamed
};

struct ToolUse {
  std::vector<ToolFunction> functions;  // empty: no call is looked for
  ToolChoice choice;
  bool parallel = true;  // more than one call in an answer
};

struct ReasoningUse {
  std::optional<bool> enabled;        // absent: as the template has it
  std::string effort;                 // "low", "medium", "high"; empty: as the template has it
  std::optional<int32_t> max_tokens;  // of reasoning; then it is closed
  bool apart = true;                  // as parts of their own, not in the text
};

struct AnswerForm {
  Structure structure;
  ToolUse tools;
  ReasoningUse reasoning;
};

}  // namespace headrace
