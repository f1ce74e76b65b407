#include "server/api/tool_use.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include "server/api/call_structure.h"
#include "server/api/fields.h"
#include "server/api/parts/call_ids.h"
#include "server/api/parts/part_parser.h"
#include "server/api/parts/reasoning_gate.h"
#include "server/api/structure.h"

namespace headrace {
namespace {

constexpr size_t kMaxNameBytes = 128;  // servers of tools put their own name before the tool's
constexpr std::string_view kAnyObject = R"({"type":"object"})";
// A template that has a place for tools, but marks that are not known, is used with these.
constexpr std::string_view kUsualToolFormat = "hermes";

// Switches of reasoning in templates.
constexpr std::string_view kReasoningSwitches[] = {"enable_thinking", "thinking",
                                                   "enable_reasoning"};

bool calls_may_come(const ToolUse& tools) {
  return !tools.functions.empty() && tools.choice.kind != ToolChoice::Kind::kNone;
}

ChatPrompt* conversation_of(PromptSource& prompts) {
  return prompts.items.empty() ? nullptr : std::get_if<ChatPrompt>(&prompts.items.front());
}

OutputFormats formats_for(const ServingModel& model, const ToolUse& tools) {
  OutputFormats formats = model.text.formats;
  if (!calls_may_come(tools)) {
    formats.tools = nullptr;
  } else if (formats.tools == nullptr && !model.text.calls_are_text) {
    formats.tools = tool_format_named(kUsualToolFormat).value();
  }
  return formats;
}

// The error of one of the tools.
Error bad_tool(size_t tool_idx, std::string_view field, std::string_view found,
               std::string_view needed) {
  return bad_field(fmt::format("tools[{}].function.{}", tool_idx, field), found, needed);
}

bool is_fit_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.' || c == '/' || c == ':';
         });
}

Status check_tools(const ToolUse& tools) {
  const auto& functions = tools.functions;
  TRY(check_tool_count(functions.size(), kMaxTools));
  for (size_t i = 0; i < functions.size(); ++i) {
    if (is_fit_name(functions[i].name)) continue;
    return bad_tool(i, "name", show_value(boost::json::string(functions[i].name)),
                    fmt::format("1 to {} letters, digits and _-./:", kMaxNameBytes));
  }
  const bool is_named = tools.choice.kind == ToolChoice::Kind::kNamed;
  const auto has_name = [&](const ToolFunction& each) { return each.name == tools.choice.name; };
  if (is_named && std::none_of(functions.begin(), functions.end(), has_name)) {
    return bad_field("tool_choice", show_value(boost::json::string(tools.choice.name)),
                     "the name of one of the tools");
  }
  if (tools.choice.kind == ToolChoice::Kind::kRequired && functions.empty()) {
    return bad_field("tool_choice", "\"required\"", "\"auto\" or \"none\" without tools");
  }
  return {};
}

// The schemas that calls are held to. One that cannot be enforced is any object, unless the tool is
// strict.
Result<std::vector<std::string>> held_schemas(const ServingModel& model, const ToolFormat& format,
                                              const ToolUse& tools) {
  std::vector<std::string> schemas;
  for (size_t i = 0; i < tools.functions.size(); ++i) {
    const ToolFunction& function = tools.functions[i];
    if (!function.input_grammar.empty()) {
      TRY(check_structure(model, {Structure::Kind::kGrammar, function.input_grammar,
                                  fmt::format("tools[{}].format.definition", i)}));
    }
    std::string schema =
        function.parameters.empty() ? std::string(kAnyObject) : function.parameters;
    Status status = check_json_schema(model, schema);
    const std::string keyword = unheld_keyword(format, schema);
    if (status.ok() && !keyword.empty() && function.strict) {
      status = bad_tool(i, "parameters", fmt::format("a schema with '{}' of a text", keyword),
                        "one without: this model does not write its arguments as JSON");
    }
    if (!status.ok() && function.strict) {
      Error error = status.error();
      error.code = ErrorCode::kUnsupported;
      error.param = fmt::format("tools[{}].function.parameters", i);
      return error;
    }
    schemas.push_back(status.ok() ? std::move(schema) : std::string(kAnyObject));
  }
  return schemas;
}

// The client's own structure, where an answer may be held to it: its faults are named as if there
// were no tools.
Status check_own_structure(const ServingModel& model, const AnswerForm& form) {
  const bool may_be_text = form.tools.choice.kind == ToolChoice::Kind::kAuto;
  if (!may_be_text || form.structure.kind == Structure::Kind::kNone) return {};
  return check_structure(model, form.structure);
}

// What is too large to be held to is an error only where the client asked for it.
bool may_hold(const ServingModel& model, const AnswerForm& form, const Structure& made) {
  if (made.kind == Structure::Kind::kNone) return false;
  const auto is_strict = [](const ToolFunction& each) { return each.strict; };
  const bool is_wanted = form.tools.choice.kind != ToolChoice::Kind::kAuto ||
                         form.structure.kind != Structure::Kind::kNone ||
                         std::ranges::any_of(form.tools.functions, is_strict);
  return is_wanted || model.text.grammars->compile(GrammarKind::kTags, made.text).ok();
}

boost::json::array template_tools(const ToolUse& tools) {
  boost::json::array list;
  for (const ToolFunction& function : tools.functions) {
    boost::json::object described{{"name", function.name}};
    if (!function.description.empty()) described["description"] = function.description;
    boost::system::error_code failed;
    auto parameters = boost::json::parse(
        function.parameters.empty() ? kAnyObject : std::string_view(function.parameters), failed);
    described["parameters"] = failed ? boost::json::value(boost::json::object()) : parameters;
    list.push_back(boost::json::object{{"type", "function"}, {"function", std::move(described)}});
  }
  return list;
}

// Of each choice. The tools are read once.
void add_parser(const OutputFormats& formats, GenerationRequest& request) {
  if (formats.reasoning == nullptr && formats.tools == nullptr) return;
  PartOptions options;
  options.reasoning = formats.reasoning;
  options.reasoning_apart = request.form.reasoning.apart;
  options.format = formats.tools;
  options.parallel = request.form.tools.parallel;
  std::vector<CallableTools::Declared> declared;
  for (const ToolFunction& each : request.form.tools.functions) {
    declared.push_back({each.name, each.parameters});
  }
  options.tools = std::make_shared<const CallableTools>(declared);
  options.make_call_id = random_call_id;
  request.make_parser = [options](const Prompt& prompt) {
    PartOptions each = options;
    each.starts_reasoning = prompt.opens_reasoning;
    return make_part_parser(std::move(each));
  };
}

}  // namespace

void add_template_variables(const ServingModel& model, const AnswerForm& form,
                            ChatPrompt& conversation) {
  boost::json::object& variables = conversation.variables;
  if (calls_may_come(form.tools) && !variables.contains("tools")) {
    variables["tools"] = template_tools(form.tools);
    conversation.required.emplace_back("tools");
  }
  const std::string_view source = model.text.template_for(has_tools(variables))->source();
  const ReasoningUse& reasoning = form.reasoning;
  if (!reasoning.effort.empty() && !variables.contains("reasoning_effort")) {
    variables["reasoning_effort"] = reasoning.effort;
  }
  if (!reasoning.enabled) return;
  for (const std::string_view name : kReasoningSwitches) {
    const bool is_read = source.find(name) != std::string_view::npos;
    if (is_read && !variables.contains(name)) variables[name] = *reasoning.enabled;
  }
}

Status check_tool_count(size_t num_tools, size_t limit) {
  if (num_tools <= limit) return {};
  return bad_field("tools", fmt::format("a list of {}", num_tools),
                   fmt::format("at most {} tools", limit));
}

Status fit_answer_form(const ServingModel& model, PromptSource& prompts,
                       GenerationRequest& request) {
  ChatPrompt* conversation = conversation_of(prompts);
  if (conversation == nullptr || model.text.chat_template == nullptr) return {};
  AnswerForm& form = request.form;
  TRY(check_tools(form.tools));
  add_template_variables(model, form, *conversation);
  const OutputFormats formats = formats_for(model, form.tools);
  add_parser(formats, request);
  if (formats.tools == nullptr) return {};
  const auto schemas = TRY(held_schemas(model, *formats.tools, form.tools));
  TRY(check_own_structure(model, form));
  Structure made = TRY(call_structure(formats, form.tools, schemas, form.structure));
  if (may_hold(model, form, made)) form.structure = std::move(made);
  return {};
}

void gate_reasoning(const ServingModel& model, GenerationRequest& request) {
  const ReasoningFormat* format = model.text.formats.reasoning;
  const ReasoningUse& use = request.form.reasoning;
  if (!request.make_parser || format == nullptr) return;
  if (!request.make_constraint && !use.max_tokens && use.enabled.value_or(true)) return;
  GateOptions options{std::string(format->open), std::string(format->close)};
  options.max_tokens = use.max_tokens;
  if (!use.enabled.value_or(true)) options.max_tokens = 0;
  options.end_ids = model.text.end_ids;
  request.gate = [options, &tokenizer = *model.text.tokenizer](const Prompt& prompt,
                                                               std::shared_ptr<Constraint> inner) {
    GateOptions each = options;
    each.starts_inside = prompt.opens_reasoning;
    return std::make_shared<ReasoningGate>(tokenizer, std::move(each), std::move(inner));
  };
}

}  // namespace headrace
