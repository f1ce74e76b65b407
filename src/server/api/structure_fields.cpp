#include "server/api/structure_fields.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <span>

#include "server/api/fields.h"

namespace headrace {
namespace {

using Kind = Structure::Kind;

// What a field's value is.
enum class Form : uint8_t {
  kText,  // a string
  kJson,  // JSON, or a string that holds it
  kList,  // a list of strings
  kFlag,  // true or false
};

struct StructureRow {
  std::string_view name;
  Kind kind;
  Form form;
};

constexpr StructureRow kInBody[] = {
    {"guided_json", Kind::kJsonSchema, Form::kJson},
    {"guided_regex", Kind::kRegex, Form::kText},
    {"guided_choice", Kind::kChoice, Form::kList},
    {"guided_grammar", Kind::kGrammar, Form::kText},
    {"guided_json_object", Kind::kJsonObject, Form::kFlag},
    {"json_schema", Kind::kJsonSchema, Form::kJson},
    {"json_object", Kind::kJsonObject, Form::kFlag},
    {"regex", Kind::kRegex, Form::kText},
    {"choice", Kind::kChoice, Form::kList},
    {"grammar", Kind::kGrammar, Form::kText},
    {"grammar_string", Kind::kGrammar, Form::kText},
    {"ebnf", Kind::kGrammar, Form::kText},
    {"structural_tag", Kind::kTags, Form::kJson},
};

constexpr StructureRow kInOutputs[] = {
    {"json", Kind::kJsonSchema, Form::kJson},        {"regex", Kind::kRegex, Form::kText},
    {"choice", Kind::kChoice, Form::kList},          {"grammar", Kind::kGrammar, Form::kText},
    {"json_object", Kind::kJsonObject, Form::kFlag}, {"structural_tag", Kind::kTags, Form::kJson},
};

struct TypeRow {
  std::string_view type;
  Kind kind;
  std::string_view member;  // that holds the form, or one of its names
};

constexpr TypeRow kTypes[] = {
    {"text", Kind::kNone, ""},
    {"json_object", Kind::kJsonObject, "schema"},
    {"json_schema", Kind::kJsonSchema, "schema"},
    {"regex", Kind::kRegex, "pattern"},
    {"grammar", Kind::kGrammar, "grammar"},
    {"structural_tag", Kind::kTags, ""},
};

std::string_view as_text(const boost::json::string& text) { return {text.data(), text.size()}; }

// The text of a form; empty: the field asks for nothing.
Result<std::string> text_of(const Fields& fields, std::string_view name, Form form) {
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
      if (value->is_string()) return std::string(as_text(value->get_string()));
      return boost::json::serialize(*value);
  }
  return std::string();
}

// Takes one form; a second is an error.
class Found {
 public:
  Status add(Structure structure) {
    if (structure.kind == Kind::kNone) return {};
    if (structure_.kind != Kind::kNone) {
      return bad_field(structure.param, fmt::format("given beside {}", structure_.param),
                       "the only one that says what form the answer has");
    }
    structure_ = std::move(structure);
    return {};
  }

  Status add(const Fields& fields, std::span<const StructureRow> rows) {
    for (const StructureRow& row : rows) {
      std::string text = TRY(text_of(fields, row.name, row.form));
      if (!text.empty()) TRY(add({row.kind, std::move(text), fields.path(row.name)}));
    }
    return {};
  }

  Structure take() { return std::move(structure_); }

 private:
  Structure structure_;
};

// The member of a format that holds its form: beside the type, or inside "json_schema".
Result<Structure> form_of(const TypeRow& row, const boost::json::object& format,
                          std::string_view path, IgnoredFields& ignored) {
  const Fields fields(format, std::string(path));
  const boost::json::object* inner = nullptr;
  if (row.kind == Kind::kJsonSchema) inner = TRY(fields.object("json_schema"));
  const std::string inner_path = std::string(path) + (inner == nullptr ? "" : "json_schema.");
  if (inner != nullptr) TRY(check_fields(*inner, kInJsonSchema, inner_path, ignored));
  const Fields holder(inner == nullptr ? format : *inner, inner_path);
  const Form form =
      row.kind == Kind::kRegex || row.kind == Kind::kGrammar ? Form::kText : Form::kJson;
  std::string text = TRY(text_of(holder, row.member, form));
  if (text.empty() && row.kind == Kind::kJsonObject) return Structure{row.kind, {}, inner_path};
  if (text.empty())
    return bad_field(holder.path(row.member), "missing", "what the answer holds to");
  // An object with a schema is held to the schema.
  const Kind kind = row.kind == Kind::kJsonObject ? Kind::kJsonSchema : row.kind;
  return Structure{kind, std::move(text), holder.path(row.member)};
}

}  // namespace

Result<Structure> parse_format(const boost::json::object& format, std::string_view path,
                               IgnoredFields& ignored) {
  const Fields fields(format, std::string(path));
  const auto type = TRY(fields.text("type"));
  const std::string param(path.substr(0, path.size() - 1));
  for (const TypeRow& row : kTypes) {
    if (type != row.type) continue;
    if (row.kind == Kind::kTags) return Structure{row.kind, boost::json::serialize(format), param};
    TRY(check_fields(format, kInFormat, path, ignored));
    if (row.kind == Kind::kNone) return Structure();
    return form_of(row, format, path, ignored);
  }
  return bad_field(fields.path("type"),
                   type ? show_value(boost::json::string(*type)) : std::string("missing"),
                   "'text', 'json_object', 'json_schema', 'regex', 'grammar' or 'structural_tag'");
}

Result<Structure> parse_structure(const boost::json::object& body, IgnoredFields& ignored) {
  const Fields fields(body);
  Found found;
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
