// Bodies of POST /v1/responses.

#include <algorithm>

#include "server/api/answer_id.h"
#include "server/api/asked_model.h"
#include "server/api/cache_fields.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/responses/responses.h"
#include "server/api/sampling_fields.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr SamplingName kSamplingNames[] = {
    {"temperature", SamplingField::kTemperature},
    {"top_p", SamplingField::kTopP},
    {"min_p", SamplingField::kMinP},
    {"repetition_penalty", SamplingField::kRepetitionPenalty},
    {"presence_penalty", SamplingField::kPresencePenalty},
    {"frequency_penalty", SamplingField::kFrequencyPenalty},
    {"top_k", SamplingField::kTopK},
    {"seed", SamplingField::kSeed},
    {"logit_bias", SamplingField::kLogitBias},
    {"max_output_tokens", SamplingField::kMaxTokens},
    {"min_tokens", SamplingField::kMinTokens},
    {"ignore_eos", SamplingField::kIgnoreEos},
    {"stop_token_ids", SamplingField::kStopIds},
    {"stop", SamplingField::kStop},
};

// Work for the client's own program or of servers that have such tools. The model is not told of
// them, and so does not call them; the header names them.
constexpr std::string_view kToolsLeftOut[] = {
    "web_search",
    "web_search_preview",
    "web_search_2025_08_26",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "computer",
    "computer_use_preview",
    "mcp",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
};

template <size_t n>
bool is_one_of(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string json_of(std::string_view text) { return to_text(boost::json::string(text)); }

// One body on its way to a request.
class BodyReader {
 public:
  BodyReader(const object& body, const ServingModel& model, const ResponsesCaller& caller)
      : body_(body), fields_(body), model_(model), caller_(caller) {}

  Result<ParsedRequest> read();

 private:
  Status read_sampling_fields();
  Status read_includes();
  Status read_text();
  Status read_format(const Fields& fields);
  Status read_reasoning();
  Status read_tools();
  Status read_tool(const Fields& fields, const object& tool, std::string_view name_space);
  Status read_namespace(const Fields& fields, const object& tool);
  Status read_tool_list(const array& tools, const std::string& path, std::string_view name_space);
  Status read_tool_choice();
  Status allow_tools(const Fields& fields);
  Status read_conversation();
  Status keep_echo();
  Result<std::string> tool_named(const Fields& fields) const;

  const object& body_;
  const Fields fields_;
  const ServingModel& model_;
  const ResponsesCaller& caller_;
  GenerationRequest request_;
  PromptSource prompts_;
  ResponseEcho echo_;
  IgnoredFields ignored_;
};

Status BodyReader::read_sampling_fields() {
  Request& prototype = request_.prototype;
  prototype.max_tokens = static_cast<int32_t>(std::min<int64_t>(model_.max_context, INT32_MAX));
  prototype.sampling = fresh_sampling(model_);
  TRY(read_sampling(fields_, kSamplingNames, model_, request_));
  TRY(read_sampling(fields_, kFurtherSamplingNames, model_, request_));
  if (prototype.max_tokens == 0) return bad_field("max_output_tokens", "0", "at least 1");
  request_.stream = TRY(fields_.boolean("stream")).value_or(false);
  const object* options = TRY(fields_.object("stream_options"));
  if (options != nullptr) {
    TRY(check_fields(*options, kInResponseStream, "stream_options.", ignored_));
  }
  TRY(read_schedule(fields_, request_.prototype));
  return read_cache_fields(fields_, request_);
}

// What the answer shows beyond its text.
Status BodyReader::read_includes() {
  bool with_logprobs = false;
  if (const array* includes = TRY(fields_.array("include"))) {
    for (const value& each : *includes) {
      if (!each.is_string()) return bad_field("include", show_value(each), "a list of strings");
      const std::string_view name(each.get_string().data(), each.get_string().size());
      if (name == "message.output_text.logprobs") {
        with_logprobs = true;
      } else if (name == "reasoning.encrypted_content") {
        echo_.with_reasoning_copy = true;
      } else {
        ignored_.add(fmt::format("include.{}", name));
      }
    }
  }
  const auto top = TRY(fields_.integer("top_logprobs", 0, kMaxLogprobs));
  if (with_logprobs || top.value_or(0) > 0) {
    request_.prototype.num_logprobs = static_cast<int>(top.value_or(0));
  }
  echo_.num_top = request_.prototype.num_logprobs;
  return {};
}

Status BodyReader::read_format(const Fields& fields) {
  const object* format = TRY(fields.object("format"));
  if (format == nullptr) return {};
  const Fields inner(*format, fields.path("format."));
  const auto type = TRY(inner.text("type"));
  TRY(check_fields(*format, kInResponseFormat, "text.format.", ignored_));
  Structure& structure = request_.form.structure;
  if (type == "text") return {};
  if (type == "json_object") {
    structure = {Structure::Kind::kJsonObject, {}, "text.format"};
    return {};
  }
  if (type != "json_schema") {
    return bad_field(inner.path("type"), type ? json_of(*type) : "missing",
                     "\"text\", \"json_object\" or \"json_schema\"");
  }
  const object* schema = TRY(inner.object("schema"));
  if (schema == nullptr) return bad_field(inner.path("schema"), "missing", "a JSON schema");
  structure = {Structure::Kind::kJsonSchema, to_text(*schema), "text.format.schema"};
  return {};
}

Status BodyReader::read_text() {
  const object* text = TRY(fields_.object("text"));
  if (text == nullptr) return {};
  TRY(check_fields(*text, kInResponseText, "text.", ignored_));
  return read_format(Fields(*text, "text."));
}

Status BodyReader::read_reasoning() {
  const object* reasoning = TRY(fields_.object("reasoning"));
  if (reasoning == nullptr) return {};
  TRY(check_fields(*reasoning, kInResponseReasoning, "reasoning.", ignored_));
  const auto effort = TRY(Fields(*reasoning, "reasoning.").text("effort"));
  if (!effort) return {};
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  if (!is_one_of(kEfforts, *effort)) {
    return bad_field("reasoning.effort", json_of(*effort),
                     "none, minimal, low, medium, high or xhigh");
  }
  if (*effort == "none") {
    request_.form.reasoning.enabled = false;
  } else {
    request_.form.reasoning.effort = *effort;
  }
  return {};
}

// A tool that takes a text becomes a function with one argument: templates know nothing else. What
// the text must look like is told to the model, and its calls are held to it.
Result<ToolFunction> function_of_custom(std::string name, std::string description,
                                        const Fields& format) {
  object input{{"type", "string"}};
  ToolFunction function{std::move(name), std::move(description), {}, false};
  const std::string_view type = TRY(format.text("type")).value_or("text");
  if (type != "text" && type != "grammar") {
    return bad_field(format.path("type"), json_of(type), "\"text\" or \"grammar\"");
  }
  if (type == "grammar") {
    const std::string_view syntax = TRY(format.text("syntax")).value_or("");
    const std::string definition(TRY(format.text("definition")).value_or(""));
    if (syntax != "lark" && syntax != "regex") {
      return bad_field(format.path("syntax"), json_of(syntax), "\"lark\" or \"regex\"");
    }
    if (definition.empty()) return bad_field(format.path("definition"), "missing", "a grammar");
    function.description += "\nThe input holds to this grammar:\n" + definition;
    function.strict = true;
    if (syntax == "lark") {
      function.input_grammar = definition;
    } else {
      input["pattern"] = "^(?:" + definition + ")$";
    }
  }
  function.parameters = to_text(object{{"type", "object"},
                                       {"properties", {{"input", std::move(input)}}},
                                       {"required", {"input"}},
                                       {"additionalProperties", false}});
  return function;
}

Status BodyReader::read_tool(const Fields& fields, const object& tool,
                             std::string_view name_space) {
  const auto type = TRY(fields.text("type"));
  if (type && is_one_of(kToolsLeftOut, *type)) {
    ignored_.add(fmt::format("tools[].{}", *type));
    return {};
  }
  if (type == "namespace" && name_space.empty()) return read_namespace(fields, tool);
  if (type != "function" && type != "custom") {
    Error error = bad_field(fields.path("type"), type ? json_of(*type) : "missing",
                            "\"function\" or \"custom\"");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  TRY(check_fields(tool, kInResponseTool, "tools[].", ignored_));
  const auto name = TRY(fields.text("name"));
  if (!name || name->empty()) return bad_field(fields.path("name"), "missing", "a name");
  std::string called = called_name(name_space, *name);
  if (!name_space.empty()) {
    echo_.placed_tools.push_back({called, std::string(name_space), std::string(*name)});
  }
  std::string description(TRY(fields.text("description")).value_or(""));
  auto& functions = request_.form.tools.functions;
  if (type == "custom") {
    echo_.custom_tools.push_back(called);
    const object* format = TRY(fields.object("format"));
    const object none;
    functions.push_back(TRY(
        function_of_custom(std::move(called), std::move(description),
                           Fields(format == nullptr ? none : *format, fields.path("format.")))));
    return {};
  }
  const object* parameters = TRY(fields.object("parameters"));
  functions.push_back({std::move(called), std::move(description),
                       parameters == nullptr ? std::string() : to_text(*parameters),
                       TRY(fields.boolean("strict")).value_or(false)});
  return {};
}

// Tools that one server of tools offers.
Status BodyReader::read_namespace(const Fields& fields, const object& tool) {
  TRY(check_fields(tool, kInResponseTool, "tools[].", ignored_));
  const auto name = TRY(fields.text("name"));
  if (!name || name->empty()) return bad_field(fields.path("name"), "missing", "a name");
  const array* tools = TRY(fields.array("tools"));
  return tools == nullptr ? Status() : read_tool_list(*tools, fields.path("tools"), *name);
}

Status BodyReader::read_tool_list(const array& tools, const std::string& path,
                                  std::string_view name_space) {
  TRY(check_tool_count(tools.size(), kUsualMaxTools));
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string each = fmt::format("{}[{}]", path, i);
    const object* tool = tools[i].if_object();
    if (tool == nullptr) return bad_field(each, show_value(tools[i]), "an object");
    TRY(read_tool(Fields(*tool, each + "."), *tool, name_space));
  }
  return {};
}

Status BodyReader::read_tools() {
  request_.form.tools.parallel = TRY(fields_.boolean("parallel_tool_calls")).value_or(true);
  const array* tools = TRY(fields_.array("tools"));
  return tools == nullptr ? Status() : read_tool_list(*tools, "tools", {});
}

// The name of a tool that the body offers.
Result<std::string> BodyReader::tool_named(const Fields& fields) const {
  const auto name = TRY(fields.text("name"));
  const auto name_space = TRY(fields.text("namespace"));
  const std::string called = called_name(name_space.value_or(""), name.value_or(""));
  for (const ToolFunction& each : request_.form.tools.functions) {
    if (name && each.name == called) return each.name;
  }
  return bad_field(fields.path("name"), name ? json_of(*name) : "missing",
                   "the name of one of the tools");
}

// {"type":"allowed_tools","mode","tools"}: of the tools that are offered, those that may be called.
Status BodyReader::allow_tools(const Fields& fields) {
  const auto mode = TRY(fields.text("mode"));
  const array* allowed = TRY(fields.array("tools"));
  if (mode && mode != "auto" && mode != "required") {
    return bad_field(fields.path("mode"), json_of(*mode), "\"auto\" or \"required\"");
  }
  std::vector<std::string> names;
  if (allowed != nullptr) {
    for (const value& each : *allowed) {
      const object* tool = each.if_object();
      if (tool == nullptr) return bad_field(fields.path("tools"), show_value(each), "objects");
      names.push_back(TRY(tool_named(Fields(*tool, fields.path("tools[].")))));
    }
  }
  ToolUse& use = request_.form.tools;
  std::erase_if(use.functions, [&names](const ToolFunction& each) {
    return std::find(names.begin(), names.end(), each.name) == names.end();
  });
  if (mode == "required") use.choice.kind = ToolChoice::Kind::kRequired;
  return {};
}

Status BodyReader::read_tool_choice() {
  ToolUse& use = request_.form.tools;
  const value* choice = fields_.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return {};
  if (*choice == "none") {
    use.choice.kind = ToolChoice::Kind::kNone;
    return {};
  }
  if (*choice == "required") {
    if (use.functions.empty()) {
      return bad_field("tool_choice", "\"required\"", "with tools to choose from");
    }
    use.choice.kind = ToolChoice::Kind::kRequired;
    return {};
  }
  constexpr std::string_view kNeeded =
      "\"auto\", \"none\", \"required\", or an object of type function, custom or allowed_tools";
  if (!choice->is_object()) return bad_field("tool_choice", show_value(*choice), kNeeded);
  const Fields fields(choice->get_object(), "tool_choice.");
  const auto type = TRY(fields.text("type"));
  if (type == "allowed_tools") return allow_tools(fields);
  if (type != "function" && type != "custom") {
    return bad_field("tool_choice.type", type ? json_of(*type) : "missing", kNeeded);
  }
  use.choice = {ToolChoice::Kind::kNamed, TRY(tool_named(fields))};
  return {};
}

Status BodyReader::read_conversation() {
  const auto source = chat_template_source(model_);
  if (!source.ok()) {
    Error error = source.error();
    error.param = "input";
    return error;
  }
  const array items = TRY(collect_items(body_, caller_));
  const auto instructions = TRY(fields_.text("instructions"));
  prompts_.param = "input";
  prompts_.items.emplace_back(
      make_chat_prompt(TRY(read_items(items, instructions.value_or(""), ignored_))));
  const bool keep = TRY(fields_.boolean("store")).value_or(true);
  if (!keep) return {};
  echo_.store = caller_.store;
  echo_.owner = caller_.owner;
  echo_.items = to_text(items);
  return {};
}

// The response repeats what it was asked with.
Status BodyReader::keep_echo() {
  struct Row {
    std::string_view name, otherwise;  // JSON where the body says nothing
  };
  constexpr Row kRows[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"max_tool_calls", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"previous_response_id", "null"},
      {"prompt_cache_key", "null"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"safety_identifier", "null"},
      {"store", "true"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", "\"auto\""},
      {"tools", "[]"},
      {"top_logprobs", "0"},
      {"truncation", "\"disabled\""},
      {"user", "null"},
  };
  for (const Row& row : kRows) {
    const value* given = fields_.find(row.name);
    echo_.members.emplace_back(row.name, given ? to_text(*given) : std::string(row.otherwise));
  }
  const SamplingParams& sampling = request_.prototype.sampling;
  echo_.members.emplace_back("temperature", JsonWriter().number(sampling.temperature).str());
  echo_.members.emplace_back("top_p", JsonWriter().number(sampling.top_p).str());
  return {};
}

Result<ParsedRequest> BodyReader::read() {
  echo_.model = TRY(asked_model(body_, model_));
  echo_.id = fresh_response_id();
  TRY(check_fields(body_, kInResponses, "", ignored_));
  TRY(read_sampling_fields());
  TRY(read_includes());
  TRY(read_text());
  TRY(read_reasoning());
  TRY(read_tools());
  TRY(read_tool_choice());
  TRY(read_conversation());
  TRY(keep_echo());
  name_ignored(ignored_, request_.headers);
  return ParsedRequest{std::move(request_), std::move(prompts_),
                       make_response_renderer(model_, std::move(echo_))};
}

}  // namespace

Result<ParsedRequest> parse_response(const object& body, const ServingModel& model,
                                     const ResponsesCaller& caller) {
  return BodyReader(body, model, caller).read();
}

std::string called_name(std::string_view name_space, std::string_view name) {
  return name_space.empty() ? std::string(name) : fmt::format("{}__{}", name_space, name);
}

std::string fresh_response_id() { return fresh_answer_id("resp_"); }

std::string item_id(std::string_view prefix, std::string_view response_id, size_t item_idx) {
  return fmt::format("{}_{}_{}", prefix, response_id.substr(response_id.find('_') + 1), item_idx);
}

std::string response_of_item(std::string_view item_id) {
  const size_t begin = item_id.find('_');
  const size_t end = item_id.rfind('_');
  if (begin == std::string_view::npos || begin == end) return {};
  return fmt::format("resp_{}", item_id.substr(begin + 1, end - begin - 1));
}

}  // namespace headrace
