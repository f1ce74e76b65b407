#include <algorithm>
#include <boost/json/array.hpp>

#include "base/strings.h"
#include "server/api/anthropic/anthropic.h"
#include "server/api/asked_model.h"
#include "server/api/json.h"
#include "server/api/sampling_fields.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace {

using boost::json::object;

constexpr SamplingName kSampling[] = {
    {"temperature", SamplingField::kTemperature},
    {"top_p", SamplingField::kTopP},
    {"top_k", SamplingField::kTopK},
    {"max_tokens", SamplingField::kMaxTokens},
    {"stop_sequences", SamplingField::kStop},
};

struct EffortRow {
  std::string_view name, effort;  // as the client and as templates say it
};
constexpr EffortRow kEfforts[] = {
    {"low", "low"}, {"medium", "medium"}, {"high", "high"}, {"xhigh", "high"}, {"max", "high"},
};

Error unknown_type(std::string_view path, std::string_view found, std::string_view needed) {
  return bad_field(path, show_value(boost::json::string(found)), needed);
}

Result<std::string_view> type_of(const Fields& fields) {
  const auto type = TRY(fields.text("type"));
  if (!type) return bad_field(fields.path("type"), "missing", "a string");
  return *type;
}

Result<ToolFunction> parse_tool(const boost::json::value& item, const std::string& path,
                                IgnoredFields& ignored) {
  if (!item.is_object()) return bad_field(path, show_value(item), "an object");
  TRY(check_fields(item.get_object(), kInBlockTool, path + ".", ignored));
  const Fields fields(item.get_object(), path + ".");
  const auto type = TRY(fields.text("type"));
  if (type && *type != "custom") {
    Error error = unknown_type(fields.path("type"), *type, "\"custom\", a tool of the client");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  const auto name = TRY(fields.text("name"));
  if (!name || name->empty()) return bad_field(fields.path("name"), "missing", "a string");
  ToolFunction tool;
  tool.name = *name;
  tool.description = TRY(fields.text("description")).value_or("");
  const object* schema = TRY(fields.object("input_schema"));
  if (schema != nullptr) tool.parameters = to_text(boost::json::value(*schema));
  tool.strict = TRY(fields.boolean("strict")).value_or(false);
  return tool;
}

Status parse_choice(const Fields& fields, ToolUse& use) {
  const object* given = TRY(fields.object("tool_choice"));
  if (given == nullptr) return {};
  const Fields choice(*given, "tool_choice.");
  const std::string_view type = TRY(type_of(choice));
  use.parallel = !TRY(choice.boolean("disable_parallel_tool_use")).value_or(false);
  if (type == "any") {
    use.choice.kind = ToolChoice::Kind::kRequired;
  } else if (type == "none") {
    use.choice.kind = ToolChoice::Kind::kNone;
  } else if (type == "tool") {
    const auto name = TRY(choice.text("name"));
    if (!name) return bad_field("tool_choice.name", "missing", "the name of a tool");
    use.choice = {ToolChoice::Kind::kNamed, std::string(*name)};
  } else if (type != "auto") {
    return unknown_type("tool_choice.type", type, "\"auto\", \"any\", \"tool\" or \"none\"");
  }
  return {};
}

Status check_choice(const ToolUse& use) {
  const ToolChoice& choice = use.choice;
  const bool is_forced =
      choice.kind == ToolChoice::Kind::kRequired || choice.kind == ToolChoice::Kind::kNamed;
  if (is_forced && use.functions.empty()) {
    return bad_field("tools", "empty", "a list of the tools that tool_choice asks for");
  }
  if (choice.kind != ToolChoice::Kind::kNamed) return {};
  const bool is_there =
      std::any_of(use.functions.begin(), use.functions.end(),
                  [&](const ToolFunction& each) { return each.name == choice.name; });
  if (is_there) return {};
  return unknown_type("tool_choice.name", choice.name, "the name of one of the tools");
}

// What the model chooses itself (adaptive) is what it does when it may think.
Status parse_thinking(const Fields& fields, ReasoningUse& reasoning, bool& shows_thinking,
                      IgnoredFields& ignored) {
  const object* given = TRY(fields.object("thinking"));
  if (given == nullptr) return {};
  TRY(check_fields(*given, kInThinking, "thinking.", ignored));
  const Fields thinking(*given, "thinking.");
  const std::string_view type = TRY(type_of(thinking));
  if (type != "enabled" && type != "adaptive" && type != "between_tools" && type != "disabled") {
    return unknown_type("thinking.type", type, "\"enabled\", \"adaptive\" or \"disabled\"");
  }
  reasoning.enabled = type != "disabled";
  const auto budget = TRY(thinking.integer("budget_tokens", 1, INT32_MAX));
  if (type == "enabled" && budget) reasoning.max_tokens = static_cast<int32_t>(*budget);
  shows_thinking = TRY(thinking.text("display")).value_or("") != "omitted";
  return {};
}

Status parse_format(const Fields& fields, Structure& structure) {
  const object* given = TRY(fields.object("format"));
  if (given == nullptr) return {};
  const std::string path = fields.path("format");
  const Fields format(*given, path + ".");
  const std::string_view type = TRY(type_of(format));
  if (type != "json_schema") {
    return unknown_type(format.path("type"), type, "\"json_schema\"");
  }
  const object* schema = TRY(format.object("schema"));
  if (schema == nullptr) return bad_field(format.path("schema"), "missing", "a JSON schema");
  structure = {Structure::Kind::kJsonSchema, to_text(boost::json::value(*schema)),
               format.path("schema")};
  return {};
}

Status parse_output(const Fields& fields, AnswerForm& form, IgnoredFields& ignored) {
  const object* given = TRY(fields.object("output_config"));
  if (given == nullptr) return {};
  TRY(check_fields(*given, kInOutputConfig, "output_config.", ignored));
  const Fields output(*given, "output_config.");
  TRY(parse_format(output, form.structure));
  const auto effort = TRY(output.text("effort"));
  if (!effort) return {};
  for (const EffortRow& row : kEfforts) {
    if (row.name == *effort) form.reasoning.effort = row.effort;
  }
  if (!form.reasoning.effort.empty()) return {};
  return unknown_type("output_config.effort", *effort,
                      "\"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
}

// What counting reads too: all that the prompt is made of.
Status parse_prompt(const Fields& fields, const ServingModel& model, ParsedRequest& parsed,
                    AnthropicAnswer& answer, IgnoredFields& ignored) {
  AnswerForm& form = parsed.request.form;
  TRY(parse_thinking(fields, form.reasoning, answer.shows_thinking, ignored));
  TRY(parse_output(fields, form, ignored));
  form.tools = TRY(parse_anthropic_tools(fields, ignored));
  parsed.prompts.param = "messages";
  parsed.prompts.items.emplace_back(TRY(parse_anthropic_conversation(fields, model, ignored)));
  return {};
}

// Betas, less their dates, of what is always so here or cannot change an answer.
constexpr std::string_view kKnownBetas[] = {
    "claude-code",          "effort",        "extended-cache-ttl", "fine-grained-tool-streaming",
    "interleaved-thinking", "oauth",         "output-128k",        "prompt-caching",
    "structured-outputs",   "token-counting"};

bool is_known_beta(std::string_view beta) {
  return std::any_of(std::begin(kKnownBetas), std::end(kKnownBetas), [&](std::string_view known) {
    return beta.starts_with(known) && beta.substr(known.size()).starts_with('-');
  });
}

// Names with commas between.
void name_betas(std::string_view betas, IgnoredFields& ignored) {
  for (const std::string_view beta : split_list(betas)) {
    if (!is_known_beta(beta)) ignored.add(fmt::format("anthropic-beta.{}", beta));
  }
}

}  // namespace

Result<ToolUse> parse_anthropic_tools(const Fields& fields, IgnoredFields& ignored) {
  ToolUse use;
  const boost::json::array* tools = TRY(fields.array("tools"));
  const size_t num_tools = tools == nullptr ? 0 : tools->size();
  TRY(check_tool_count(num_tools, kMaxTools));
  for (size_t i = 0; i < num_tools; ++i) {
    use.functions.push_back(TRY(parse_tool((*tools)[i], fmt::format("tools[{}]", i), ignored)));
  }
  TRY(parse_choice(fields, use));
  TRY(check_choice(use));
  return use;
}

Result<ParsedRequest> parse_message(const object& body, const ServingModel& model,
                                    std::string_view betas) {
  ParsedRequest parsed;
  GenerationRequest& request = parsed.request;
  AnthropicAnswer answer;
  IgnoredFields ignored;
  answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInBlockMessages, "", ignored));
  const Fields fields(body);
  request.prototype.sampling = fresh_sampling(model);
  request.prototype.max_tokens = 0;
  TRY(read_sampling(fields, kSampling, model, request));
  if (request.prototype.max_tokens == 0) {
    return bad_field("max_tokens", fields.find("max_tokens") == nullptr ? "missing" : "0",
                     "at least 1");
  }
  request.has_max_tokens = true;
  answer.max_tokens = request.prototype.max_tokens;
  request.stream = TRY(fields.boolean("stream")).value_or(false);
  TRY(read_schedule(fields, request.prototype));
  TRY(parse_prompt(fields, model, parsed, answer, ignored));
  name_betas(betas, ignored);
  name_ignored(ignored, request.headers);
  parsed.renderer = make_message_renderer(std::move(answer));
  return parsed;
}

Result<ParsedRequest> parse_message_count(const object& body, const ServingModel& model,
                                          std::string_view betas) {
  ParsedRequest parsed;
  AnthropicAnswer answer;
  IgnoredFields ignored;
  TRY(asked_model(body, model));
  TRY(check_fields(body, kInMessageCount, "", ignored));
  TRY(parse_prompt(Fields(body), model, parsed, answer, ignored));
  parsed.request.prototype.max_tokens = 0;
  name_betas(betas, ignored);
  name_ignored(ignored, parsed.request.headers);
  return parsed;
}

}  // namespace headrace
