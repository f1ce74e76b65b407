#include "cli/answer_structure.h"

#include <boost/json/parse.hpp>

#include <string>

#include "base/json.h"
#include "cli/runtime.h"

namespace headrace {
namespace {

using StructureKind = Structure::Kind;

struct StructureOption {
  std::string_view name;
  StructureKind kind;
  std::string_view marks;  // bytes of a text that is no name of a file; empty: always a text
};

constexpr StructureOption kStructureOptions[] = {
    {"--json-schema", StructureKind::kJsonSchema, "{"},
    {"--regex", StructureKind::kRegex, ""},
    {"--grammar", StructureKind::kGrammar, ":="},
};

Result<std::string> text_or_file(const StructureOption& row, const std::string& given) {
  if (row.marks.empty() || given.find_first_of(row.marks) != std::string::npos) return given;
  return read_text(given);
}

// Before a model is loaded for it.
Status check_schema(const Structure& structure) {
  if (structure.kind != StructureKind::kJsonSchema) return {};
  auto parsed = parse_json(structure.text, "the schema of --json-schema");
  if (parsed.ok()) return {};
  Error error = std::move(parsed).error();
  error.code = ErrorCode::kInvalidArgument;
  return error;
}

}  // namespace

Result<Structure> structure_from_options(const Options& options) {
  Structure found;
  for (const StructureOption& row : kStructureOptions) {
    const std::string& given = options.text(row.name);
    if (given.empty()) continue;
    if (found.kind != StructureKind::kNone) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} and {} are given, but an answer has one form: leave one out",
                        found.param, row.name);
    }
    found = {row.kind, TRY(text_or_file(row, given)), std::string(row.name)};
  }
  TRY(check_schema(found));
  return found;
}

// "structured_outputs" is the form of vLLM, for what OpenAI's has no place for.
void add_structure(const Structure& structure, boost::json::object& body) {
  using boost::json::object;
  if (structure.kind == StructureKind::kNone) return;
  if (structure.kind == StructureKind::kJsonSchema) {
    const object named{
        {"name", "answer"}, {"strict", true}, {"schema", boost::json::parse(structure.text)}};
    body["response_format"] = object{{"type", "json_schema"}, {"json_schema", named}};
    return;
  }
  const bool is_regex = structure.kind == StructureKind::kRegex;
  body["structured_outputs"] = object{{is_regex ? "regex" : "grammar", structure.text}};
}

}  // namespace headrace
