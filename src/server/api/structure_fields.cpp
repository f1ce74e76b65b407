#include "server/api/structure_fields.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <span>

#include "server/api/fields.h"
#include "server/api/json.h"

namespace headrace {
namespace {

using StructureKind = Structure::Kind;

// What a field's value is.
enum class Form : uint8_t {
  kText,  // a string
  kJson,  // JSON, or a string that holds it
  kList,  // a list of strings
  kFlag,  // true or false
};

struct StructureRow {
  std::string_view name;
  StructureKind kind;
  Form form;
};

constexpr StructureRow kInBody[] = {
    {"guided_json", StructureKind::kJsonSchema, Form::kJson},
    {"guided_regex", StructureKind::kRegex, Form::kText},
    {"guided_choice", StructureKind::kChoice, Form::kList},
    {"guided_grammar", StructureKind::kGrammar, Form::kText},
    {"guided_json_object", StructureKind::kJsonObject, Form::kFlag},
    {"json_schema", StructureKind::kJsonSchema, Form::kJson},
    {"json_object", StructureKind::kJsonObject, Form::kFlag},
    {"regex", StructureKind::kRegex, Form::kText},
    {"choice", StructureKind::kChoice, Form::kList},
    {"grammar", StructureKind::kGrammar, Form::kText},
    {"grammar_string", StructureKind::kGrammar, Form::kText},
    {"ebnf", StructureKind::kGrammar, Form::kText},
    {"structural_tag", StructureKind::kTags, Form::kJson},
};

constexpr StructureRow kInOutputs[] = {
    {"json", StructureKind::kJsonSchema, Form::kJson},
    {"regex", StructureKind::kRegex, Form::kText},
    {"choice", StructureKind::kChoice, Form::kList},
    {"grammar", StructureKind::kGrammar, Form::kText},
    {"json_object", StructureKind::kJsonObject, Form::kFlag},
    {"structural_tag", StructureKind::kTags, Form::kJson},
};

struct FormTypeRow {
  std::string_view type;
  StructureKind kind;
  std::string_view member;  // that holds the form, or one of its names
};

constexpr FormTypeRow kFormTypes[] = {
    {"text", StructureKind::kNone, ""},
    {"json_object", StructureKind::kJsonObject, "schema"},
    {"json_schema", StructureKind::kJsonSchema, "schema"},
    {"regex", StructureKind::kRegex, "pattern"},
    {"grammar", StructureKind::kGrammar, "grammar"},
    {"structural_tag", StructureKind::kTags, ""},
};

// The text of a form; empty: the field asks for nothing.
Result<std::string> text_of_form(const Fields& fields, std::string_view name, Form form) {
  const boost::json::value* value = fields.find(name);
  if (value == nullptr) return std::string();
  switch (form) {
    case Form::kText:
      return std::string(TRY(fields.text(name)).value_or(""));
    case Form::kFlag:
      return std::string(TRY(fields.boolean(name)).value_or(false) ? "true" : "");
    case Form::kList: {
      const boost::json::array* list = TRY(fields.array(name));
      return list->empty() ? std::string() : boost::json::serialize(*list);
    }
    case Form::kJson:
      if (value->is_string()) return std::string(text_view(value->get_string()));
      return boost::json::serialize(*value);
  }
  return std::string();
}

// Takes one form; a second is an error.
class FoundStructure {
 public:
  Status add(Structure structure) {
    if (structure.kind == StructureKind::kNone) return {};
    if (structure_.kind != StructureKind::kNone) {
      return bad_field(structure.param, fmt::format("given beside {}", structure_.param),
                       "the only one that says what form the answer has");
    }
    structure_ = std::move(structure);
    return {};
  }

  Status add(const Fields& fields, std::span<const StructureRow> rows) {
    for (const StructureRow& row : rows) {
      std::string text = TRY(text_of_form(fields, row.name, row.form));
      if (!text.empty()) TRY(add({row.kind, std::move(text), fields.path(row.name)}));
    }
    return {};
  }

  Structure take() { return std::move(structure_); }

 private:
  Structure structure_;
};

// The field whose members a path begins: "response_format" for "response_format.".
std::string without_dot(std::string_view path) {
  return std::string(path.substr(0, path.size() - 1));
}

// The member of a format that holds its form: beside the type, or inside "json_schema".
Result<Structure> form_of(const FormTypeRow& row, const boost::json::object& format,
                          std::string_view path, IgnoredFields& ignored) {
  const Fields fields(format, std::string(path));
  const boost::json::object* inner = nullptr;
  if (row.kind == StructureKind::kJsonSchema) inner = TRY(fields.object("json_schema"));
  const std::string inner_path = std::string(path) + (inner == nullptr ? "" : "json_schema.");
  if (inner != nullptr) TRY(check_fields(*inner, kInJsonSchema, inner_path, ignored));
  const Fields holder(inner == nullptr ? format : *inner, inner_path);
  const Form form = row.kind == StructureKind::kRegex || row.kind == StructureKind::kGrammar
                        ? Form::kText
                        : Form::kJson;
  std::string text = TRY(text_of_form(holder, row.member, form));
  if (text.empty() && row.kind == StructureKind::kJsonObject)
    return Structure{row.kind, {}, without_dot(path)};
  if (text.empty())
    return bad_field(holder.path(row.member), "missing", "what the answer holds to");
  // An object with a schema is held to the schema.
  const StructureKind kind =
      row.kind == StructureKind::kJsonObject ? StructureKind::kJsonSchema : row.kind;
  return Structure{kind, std::move(text), holder.path(row.member)};
}

}  // namespace

Result<Structure> parse_format(const boost::json::object& format, std::string_view path,
                               IgnoredFields& ignored) {
  const Fields fields(format, std::string(path));
  const auto type = TRY(fields.text("type"));
  for (const FormTypeRow& row : kFormTypes) {
    if (type != row.type) continue;
    if (row.kind == StructureKind::kTags)
      return Structure{row.kind, boost::json::serialize(format), without_dot(path)};
    TRY(check_fields(format, kInFormat, path, ignored));
    if (row.kind == StructureKind::kNone) return Structure();
    return form_of(row, format, path, ignored);
  }
  return bad_field(fields.path("type"),
                   type ? show_value(boost::json::string(*type)) : std::string("missing"),
                   "'text', 'json_object', 'json_schema', 'regex', 'grammar' or 'structural_tag'");
}

Result<Structure> parse_structure(const boost::json::object& body, IgnoredFields& ignored) {
  const Fields fields(body);
  FoundStructure found;
  if (const boost::json::object* format = TRY(fields.object("response_format"))) {
    TRY(found.add(TRY(parse_format(*format, "response_format.", ignored))));
  }
  TRY(found.add(fields, kInBody));
  if (const boost::json::object* outputs = TRY(fields.object("structured_outputs"))) {
    TRY(check_fields(*outputs, kInStructuredOutputs, "structured_outputs.", ignored));
    TRY(found.add(Fields(*outputs, "structured_outputs."), kInOutputs));
  }
  return found.take();
}

}  // namespace headrace
