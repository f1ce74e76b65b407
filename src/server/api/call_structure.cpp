#include "server/api/call_structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "base/json.h"

namespace headrace {
namespace {

namespace json = boost::json;

constexpr size_t kMaxFormDepth = 128;  // as the compiler of grammars reads JSON

json::string text(std::string_view bytes) { return json::string(bytes.data(), bytes.size()); }
std::string_view text_of_json(const json::string& bytes) { return {bytes.data(), bytes.size()}; }

json::object constant(std::string_view bytes) {
  return {{"type", "const_string"}, {"value", text(bytes)}};
}

json::object elements(std::string_view type, json::array list) {
  return {{"type", text(type)}, {"elements", std::move(list)}};
}

json::object schema_format(json::value schema) {
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

json::object tag(std::string_view begin, json::object content, std::string_view end) {
  return {
      {"type", "tag"}, {"begin", text(begin)}, {"content", std::move(content)}, {"end", text(end)}};
}

// Of a function's arguments.
json::value parsed(std::string_view schema) {
  auto value = parse_json(schema, "a schema", kMaxFormDepth);
  return value.ok() && value->is_object() ? std::move(value).value()
                                          : json::value(json::object{{"type", "object"}});
}

// A property with what its references may lead to.
json::value with_definitions(const json::value& property, const json::value& schema) {
  if (!property.is_object()) return property;
  json::object whole = property.get_object();
  for (const std::string_view name : {"$defs", "definitions"}) {
    const json::value* found = json_member(&schema, name);
    if (found != nullptr && !whole.contains(name)) whole[name] = *found;
  }
  return whole;
}

bool is_text(const json::value& property) {
  const json::value* type = json_member(&property, "type");
  return type != nullptr && *type == "string";
}

// The texts that a property may be, if they are listed.
json::array listed_texts(const json::value& property) {
  const json::value* values = json_member(&property, "enum");
  if (values == nullptr || !values->is_array()) return {};
  json::array texts;
  for (const json::value& each : values->get_array()) {
    if (each.is_string()) texts.push_back(constant(text_of_json(each.get_string())));
  }
  return texts;
}

// The expression that a property matches as a whole; empty: none, or one that may match a part.
std::string whole_pattern(const json::value& property) {
  constexpr std::string_view kBegin = "^(?:", kEnd = ")$";
  const json::value* pattern = json_member(&property, "pattern");
  if (pattern == nullptr || !pattern->is_string()) return {};
  const std::string_view bytes = text_of_json(pattern->get_string());
  if (!bytes.starts_with(kBegin) || !bytes.ends_with(kEnd)) return {};
  return std::string(bytes.substr(kBegin.size(), bytes.size() - kBegin.size() - kEnd.size()));
}

json::object text_format(const json::value& property) {
  json::array texts = listed_texts(property);
  if (!texts.empty()) return elements("or", std::move(texts));
  const std::string pattern = whole_pattern(property);
  if (!pattern.empty()) return {{"type", "regex"}, {"pattern", text(pattern)}};
  return {{"type", "any_text"}};
}

// One argument as a format writes it.
class ArgumentWriter {
 public:
  ArgumentWriter(const ToolFormat& format, const json::value& schema)
      : format_(format), schema_(schema) {}

  json::object write(std::string_view key, const json::value& property,
                     std::string_view before) const {
    if (is_text(property) && has_texts()) return write_text(key, text_format(property), before);
    return tag(std::string(before) + head(key, false),
               schema_format(with_definitions(property, schema_)), tail(false));
  }

  // A text without quotes of JSON.
  json::object write_text(std::string_view key, json::object content,
                          std::string_view before) const {
    return tag(std::string(before) + head(key, true), std::move(content), tail(true));
  }

 private:
  // Texts are written without JSON's quotes.
  bool has_texts() const {
    return format_.style == CallStyle::kParams || format_.style == CallStyle::kBraces;
  }

  std::string head(std::string_view key, bool is_plain) const {
    if (format_.style == CallStyle::kPython) return fmt::format("{}=", key);
    if (format_.style == CallStyle::kBraces) {
      return fmt::format("{}:{}", key, is_plain ? format_.quote : std::string_view());
    }
    const size_t key_end = format_.says_type && !is_plain ? 1 : 0;
    return fmt::format("{}{}{}{}{}", format_.param_open, key, format_.key_ends[key_end],
                       format_.value_open, padding());
  }

  std::string tail(bool is_plain) const {
    if (format_.style == CallStyle::kPython) return {};
    if (format_.style == CallStyle::kBraces) return std::string(is_plain ? format_.quote : "");
    return fmt::format("{}{}", padding(), format_.value_close);
  }

  std::string_view padding() const { return format_.pads_values ? "\n" : ""; }

  const ToolFormat& format_;
  const json::value& schema_;
};

struct Arguments {
  std::vector<std::pair<std::string_view, const json::value*>> required, optional;
};

Arguments arguments_of(const json::value& schema) {
  Arguments arguments;
  const json::value* properties = json_member(&schema, "properties");
  if (properties == nullptr || !properties->is_object()) return arguments;
  const json::value* required = json_member(&schema, "required");
  for (const auto& [key, value] : properties->get_object()) {
    const std::string_view name(key.data(), key.size());
    const bool is_required =
        required != nullptr && required->is_array() &&
        std::any_of(required->get_array().begin(), required->get_array().end(),
                    [&](const json::value& each) { return each == text(name); });
    (is_required ? arguments.required : arguments.optional).emplace_back(name, &value);
  }
  return arguments;
}

// Arguments between marks, in the order of the schema's lists: required ones, then some of the
// others.
json::object between_marks(const ToolFormat& format, const json::value& schema) {
  const ArgumentWriter writer(format, schema);
  const Arguments arguments = arguments_of(schema);
  json::array list{constant("")};
  for (const auto& [key, property] : arguments.required) {
    list.push_back(writer.write(key, *property, ""));
    list.push_back(constant("\n"));
  }
  for (const auto& [key, property] : arguments.optional) {
    json::array written{writer.write(key, *property, ""), constant("\n")};
    list.push_back(elements("or", {constant(""), elements("sequence", std::move(written))}));
  }
  return elements("sequence", std::move(list));
}

// key=value or key:value, with separators.
json::object between_separators(const ToolFormat& format, const json::value& schema) {
  const bool braces = format.style == CallStyle::kBraces;
  const std::string_view separator = braces ? "," : ", ";
  const ArgumentWriter writer(format, schema);
  const Arguments arguments = arguments_of(schema);
  const auto from = [&](size_t first, json::array list) {
    for (size_t i = first; i < arguments.optional.size(); ++i) {
      const auto& [key, property] = arguments.optional[i];
      list.push_back(elements("or", {constant(""), writer.write(key, *property, separator)}));
    }
    return elements("sequence", std::move(list));
  };
  json::array list{constant(braces ? "{" : "")};
  for (const auto& [key, property] : arguments.required) {
    list.push_back(writer.write(key, *property, list.size() > 1 ? separator : ""));
  }
  const json::object closing = constant(braces ? "}" : "");
  if (!arguments.required.empty()) {
    return elements("sequence", {from(0, std::move(list)), closing});
  }
  json::array options{constant("")};
  for (size_t i = 0; i < arguments.optional.size(); ++i) {
    const auto& [key, property] = arguments.optional[i];
    options.push_back(from(i + 1, {writer.write(key, *property, "")}));
  }
  return elements("sequence", {constant(braces ? "{" : ""), elements("or", options), closing});
}

json::object arguments_format(const ToolFormat& format, const json::value& schema) {
  switch (format.style) {
    case CallStyle::kParams:
      return between_marks(format, schema);
    case CallStyle::kPython:
    case CallStyle::kBraces:
      return between_separators(format, schema);
    default:
      return schema_format(schema);
  }
}

// The one argument of a function that takes a text of its client's grammar.
json::object grammar_argument(const ToolFormat& format, std::string_view grammar) {
  const bool is_raw = format.style == CallStyle::kParams || format.style == CallStyle::kBraces;
  json::object content{{"type", "grammar"}, {"grammar", text(grammar)}, {"in_json", !is_raw}};
  if (!is_raw) {
    const bool is_python = format.style == CallStyle::kPython;
    return tag(is_python ? "input=\"" : "{\"input\": \"", std::move(content),
               is_python ? "\"" : "\"}");
  }
  const bool braces = format.style == CallStyle::kBraces;
  const json::value no_schema;
  const ArgumentWriter writer(format, no_schema);
  return elements("sequence",
                  {constant(braces ? "{" : ""), writer.write_text("input", std::move(content), ""),
                   constant(braces ? "}" : "\n")});
}

class CallWriter {
 public:
  CallWriter(const OutputFormats& formats, const ToolUse& tools,
             const std::vector<std::string>& schemas)
      : formats_(formats), format_(*formats.tools), tools_(tools), schemas_(schemas) {}

  // Calls and nothing else.
  json::object forced() const {
    const CallWriting& writing = format_.writing;
    json::array list;
    if (!writing.lead.empty()) {
      list.push_back(elements("or", {constant(""), constant(writing.lead)}));
    }
    list.push_back(constant(writing.begin));
    list.push_back(calls());
    list.push_back(constant(writing.end));
    return elements("sequence", std::move(list));
  }

  // Text, in which what begins a call goes on as one. What else begins with a mark may stand there.
  json::object in_text() const {
    const CallWriting& writing = format_.writing;
    json::array tags = writing.begin.empty()
                           ? each_call(writing)
                           : json::array{tag(writing.begin, calls(), writing.end)};
    json::array triggers{text(format_.opens[0])};
    add_bare_calls(tags, triggers);
    if (formats_.reasoning != nullptr) add_other_marks(*formats_.reasoning, tags, triggers);
    return {{"type", "triggered_tags"},
            {"tags", std::move(tags)},
            {"triggers", std::move(triggers)},
            {"text", true},
            {"at_least_one", false}};
  }

  // Whether a call begins with the mark that is looked for in text.
  bool is_marked() const {
    const CallWriting& writing = format_.writing;
    const std::string_view first = writing.begin.empty() ? writing.head : writing.begin;
    const std::string_view mark = format_.opens[0];
    return !mark.empty() && first.starts_with(mark);
  }

  // Calls, or the client's answer. Where that is tags in text, calls are some more of them: its
  // free text would hold what begins a call to nothing.
  json::object beside(json::object answer) const {
    if (!is_marked() || !has_free_text(answer))
      return elements("or", {forced(), std::move(answer)});
    json::object calls = in_text();
    const std::string_view tags = answer.contains("structures") ? "structures" : "tags";
    for (const auto& [from, to] : {std::pair{"tags", tags}, {"triggers", "triggers"}}) {
      for (json::value& each : calls[from].get_array()) {
        answer[to].get_array().push_back(std::move(each));
      }
    }
    return answer;
  }

 private:
  static bool has_free_text(const json::object& answer) {
    if (answer.at("type") != "triggered_tags") return false;
    const json::value* text = answer.if_contains("text");
    const bool is_said = text != nullptr && text->is_bool();
    return is_said ? text->get_bool() : !answer.contains("separator");
  }

  json::object calls() const {
    const bool only_one = !tools_.parallel || tools_.choice.kind == ToolChoice::Kind::kNamed;
    return {{"type", "tags_with_separator"},
            {"tags", each_call(format_.writing)},
            {"separator", text(format_.writing.between)},
            {"text", false},
            {"at_least_one", true},
            {"stop_after_first", only_one}};
  }

  // A call that lacks its mark is one from its arguments on.
  void add_bare_calls(json::array& tags, json::array& triggers) const {
    for (const CallWriting& writing : bare_writings(format_)) {
      for (json::value& call : each_call(writing)) {
        triggers.push_back(call.at("begin"));
        tags.push_back(std::move(call));
      }
    }
  }

  json::array each_call(const CallWriting& writing) const {
    json::array tags;
    for (size_t i = 0; i < tools_.functions.size(); ++i) {
      const std::string& name = tools_.functions[i].name;
      const std::string& input_grammar = tools_.functions[i].input_grammar;
      if (tools_.choice.kind == ToolChoice::Kind::kNamed && name != tools_.choice.name) continue;
      const std::string count = format_.counts_calls ? ":0" : "";
      const std::string begin = begin_of_call(writing, name + count);
      json::object arguments = input_grammar.empty()
                                   ? arguments_format(format_, parsed(schemas_[i]))
                                   : grammar_argument(format_, input_grammar);
      tags.push_back(tag(begin, std::move(arguments), writing.tail));
    }
    return tags;
  }

  static void add_other_marks(const ReasoningFormat& reasoning, json::array& tags,
                              json::array& triggers) {
    for (const std::string_view mark : reasoning.silent) {
      if (mark.empty()) continue;
      tags.push_back(tag(mark, constant(""), ""));
      triggers.push_back(text(mark));
    }
    if (!reasoning.anywhere) return;
    tags.push_back(tag(reasoning.open, {{"type", "any_text"}}, reasoning.close));
    triggers.push_back(text(reasoning.open));
  }

  const OutputFormats& formats_;
  const ToolFormat& format_;
  const ToolUse& tools_;
  const std::vector<std::string>& schemas_;
};

// JSON of the client's form that this library does not read as the compiler of grammars does.
Error not_combined(const Structure& answer, std::string_view why) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} cannot be combined with tools, unless tool_choice is \"none\": {}",
                           answer.param, why),
               {},
               answer.param};
}

Result<json::value> json_of(const Structure& answer) {
  auto value = parse_json(answer.text, "it", kMaxFormDepth);
  if (!value.ok()) return not_combined(answer, value.error().message);
  return value;
}

Result<json::object> choice_format(const Structure& answer) {
  const json::value choices = TRY(json_of(answer));
  const auto is_text = [](const json::value& each) { return each.is_string(); };
  if (!choices.is_array() || !std::ranges::all_of(choices.get_array(), is_text)) {
    return not_combined(answer, "it is no list of strings");
  }
  json::array options;
  for (const json::value& each : choices.get_array()) {
    options.push_back(constant(text_of_json(each.get_string())));
  }
  return elements("or", std::move(options));
}

// Tags of both descriptions: a format, or a list of tags beside its triggers.
Result<json::object> tags_format(const Structure& answer) {
  json::value described = TRY(json_of(answer));
  const json::value* format = json_member(&described, "format");
  if (format != nullptr && format->is_object()) return format->get_object();
  if (format != nullptr || !described.is_object()) {
    return not_combined(answer, "it is no description of tags");
  }
  described.get_object()["type"] = "triggered_tags";
  return std::move(described.get_object());
}

// The client's own structure.
Result<json::object> answer_format(const Structure& answer) {
  switch (answer.kind) {
    case Structure::Kind::kNone:
      break;
    case Structure::Kind::kJsonObject:
      return schema_format(json::object{{"type", "object"}});
    case Structure::Kind::kJsonSchema:
      return schema_format(TRY(json_of(answer)));
    case Structure::Kind::kRegex:
      return json::object{{"type", "regex"}, {"pattern", text(answer.text)}};
    case Structure::Kind::kGrammar:
      return json::object{{"type", "grammar"}, {"grammar", text(answer.text)}};
    case Structure::Kind::kChoice:
      return choice_format(answer);
    case Structure::Kind::kTags:
      return tags_format(answer);
  }
  CHECK(false, "a structure of kind {}", static_cast<int>(answer.kind));
}

}  // namespace

Result<Structure> call_structure(const OutputFormats& formats, const ToolUse& tools,
                                 const std::vector<std::string>& schemas, const Structure& answer) {
  const CallWriter writer(formats, tools, schemas);
  const bool is_forced = tools.choice.kind == ToolChoice::Kind::kRequired ||
                         tools.choice.kind == ToolChoice::Kind::kNamed;
  const bool has_answer = answer.kind != Structure::Kind::kNone;
  if (!is_forced && !has_answer && !writer.is_marked()) return Structure();
  json::object format = is_forced    ? writer.forced()
                        : has_answer ? writer.beside(TRY(answer_format(answer)))
                                     : writer.in_text();
  Structure made;
  made.kind = Structure::Kind::kTags;
  made.text = json::serialize(json::object{{"format", std::move(format)}});
  made.param = has_answer && !is_forced ? answer.param : "tools";
  return made;
}

std::string unheld_keyword(const ToolFormat& format, const std::string& schema) {
  const bool has_texts = format.style == CallStyle::kParams || format.style == CallStyle::kBraces;
  const json::value value = parsed(schema);
  const json::value* properties = json_member(&value, "properties");
  if (!has_texts || properties == nullptr || !properties->is_object()) return {};
  for (const auto& [key, property] : properties->get_object()) {
    if (!is_text(property)) continue;
    for (const std::string_view keyword :
         {"pattern", "format", "minLength", "maxLength", "const"}) {
      const bool is_held = keyword == "pattern" && !whole_pattern(property).empty();
      if (!is_held && property.get_object().contains(keyword)) return std::string(keyword);
    }
  }
  return {};
}

}  // namespace headrace
