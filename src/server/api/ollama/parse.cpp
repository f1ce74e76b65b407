#include <boost/json/array.hpp>
#include <deque>
#include <map>

#include "server/api/asked_model.h"
#include "server/api/conversation.h"
#include "server/api/json.h"
#include "server/api/ollama/ollama.h"
#include "server/api/prompt.h"
#include "server/api/sampling_fields.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

constexpr SamplingName kOptions[] = {
    {"temperature", SamplingField::kTemperature},
    {"top_p", SamplingField::kTopP},
    {"top_k", SamplingField::kTopK},
    {"min_p", SamplingField::kMinP},
    {"repeat_penalty", SamplingField::kRepetitionPenalty},
    {"presence_penalty", SamplingField::kPresencePenalty},
    {"frequency_penalty", SamplingField::kFrequencyPenalty},
    {"seed", SamplingField::kSeedOrRandom},
    {"num_predict", SamplingField::kMaxTokensOrAll},
    {"stop", SamplingField::kStop},
};

bool is_empty(const value* given) {
  return given == nullptr || given->is_null() ||
         (given->is_array() && given->get_array().empty()) ||
         (given->is_string() && given->get_string().empty());
}

Status parse_options(const Fields& fields, const ServingModel& model, GenerationRequest& request,
                     IgnoredFields& ignored) {
  Request& prototype = request.prototype;
  prototype.sampling = fresh_sampling(model);
  prototype.max_tokens = static_cast<int32_t>(std::min<int64_t>(model.max_context, INT32_MAX));
  const object* given = TRY(fields.object("options"));
  if (given == nullptr) return {};
  TRY(check_fields(*given, kInOllamaOptions, "options.", ignored));
  const Fields options(*given, "options.");
  TRY(read_sampling(options, kOptions, model, request));
  TRY(read_sampling(options, kFurtherSamplingNames, model, request));
  if (prototype.max_tokens == 0) return bad_field("options.num_predict", "0", "at least 1, or -1");
  return read_penalty_window(options, prototype.sampling);
}

// "json" is any object, an object is a schema.
Status parse_format(const Fields& fields, Structure& structure) {
  const value* format = fields.find("format");
  if (is_empty(format)) return {};
  if (format->is_object()) {
    structure = {Structure::Kind::kJsonSchema, to_text(*format), "format"};
  } else if (format->is_string() && format->get_string() == "json") {
    structure = {Structure::Kind::kJsonObject, {}, "format"};
  } else {
    return bad_field("format", show_value(*format), "\"json\" or a JSON schema");
  }
  return {};
}

Status parse_think(const Fields& fields, ReasoningUse& reasoning) {
  const value* think = fields.find("think");
  if (think == nullptr) return {};
  if (think->is_bool()) {
    reasoning.enabled = think->get_bool();
    return {};
  }
  const std::string_view effort = think->is_string() ? text_view(think->get_string()) : "";
  if (effort != "low" && effort != "medium" && effort != "high") {
    return bad_field("think", show_value(*think), "true, false, \"low\", \"medium\" or \"high\"");
  }
  reasoning.enabled = true;
  reasoning.effort = effort;
  return {};
}

// What is read of "options", "think", "format", "stream" and "logprobs" of both.
Status parse_common(const Fields& fields, const ServingModel& model, GenerationRequest& request,
                    IgnoredFields& ignored) {
  TRY(parse_options(fields, model, request, ignored));
  TRY(parse_format(fields, request.form.structure));
  TRY(parse_think(fields, request.form.reasoning));
  TRY(read_logprobs(fields, request.prototype));
  TRY(read_schedule(fields, request.prototype));
  request.stream = TRY(fields.boolean("stream")).value_or(true);
  return {};
}

// Calls of the assistant: {"function": {"name", "arguments": an object}}.
Result<std::vector<ChatCall>> parse_calls(const Fields& message) {
  std::vector<ChatCall> calls;
  const array* list = TRY(message.array("tool_calls"));
  const size_t num_calls = list == nullptr ? 0 : list->size();
  for (size_t i = 0; i < num_calls; ++i) {
    const std::string path = message.path(fmt::format("tool_calls[{}]", i));
    if (!(*list)[i].is_object()) return bad_field(path, show_value((*list)[i]), "an object");
    const Fields call((*list)[i].get_object(), path + ".");
    const object* function = TRY(call.object("function"));
    if (function == nullptr) return bad_field(path + ".function", "missing", "an object");
    const Fields fields(*function, path + ".function.");
    const auto name = TRY(fields.text("name"));
    if (!name) return bad_field(fields.path("name"), "missing", "a string");
    const object* arguments = TRY(fields.object("arguments"));
    calls.push_back({std::string(TRY(call.text("id")).value_or("")), std::string(*name),
                     arguments == nullptr ? "{}" : to_text(value(*arguments))});
  }
  return calls;
}

// Calls whose results are still to come. A body may hold very many.
class OpenCalls {
 public:
  void add(const ChatCall& call) {
    all_.push_back(calls_.size());
    by_name_[call.name].push_back(calls_.size());
    calls_.push_back({call.id, call.name, true});
  }

  // Gives a result the id and the name of the first call of its name, or of any where it has none.
  void answer(ChatMessage& result) {
    std::deque<size_t>& order = result.name.empty() ? all_ : by_name_[result.name];
    while (!order.empty()) {
      Call& call = calls_[order.front()];
      order.pop_front();
      if (!std::exchange(call.open, false)) continue;
      result.call_id = call.id;
      result.name = call.name;
      return;
    }
  }

 private:
  struct Call {
    std::string id, name;
    bool open;
  };

  std::vector<Call> calls_;
  std::deque<size_t> all_;  // of calls_, in their order; those that are answered are passed over
  std::map<std::string, std::deque<size_t>> by_name_;
};

// Each call has an id for templates that ask for one; clients of this dialect know none.
void name_calls(std::vector<ChatMessage>& messages) {
  int num_calls = 0;
  OpenCalls open;
  for (ChatMessage& message : messages) {
    for (ChatCall& call : message.calls) {
      if (call.id.empty()) call.id = fmt::format("call_{}", num_calls);
      ++num_calls;
      open.add(call);
    }
    if (message.role == "tool" && message.call_id.empty()) open.answer(message);
  }
}

Result<ChatMessage> parse_message(const value& item, const std::string& path,
                                  IgnoredFields& ignored) {
  if (!item.is_object()) return bad_field(path, show_value(item), "an object");
  TRY(check_fields(item.get_object(), kInOllamaMessage, path + ".", ignored));
  const Fields fields(item.get_object(), path + ".");
  const auto role = TRY(fields.text("role"));
  if (!role || std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
    return bad_field(path + ".role", role ? show_value(boost::json::string(*role)) : "missing",
                     "system, user, assistant or tool");
  }
  ChatMessage message{std::string(*role), std::string(TRY(fields.text("content")).value_or(""))};
  message.reasoning = TRY(fields.text("thinking")).value_or("");
  message.calls = TRY(parse_calls(fields));
  message.call_id = TRY(fields.text("tool_call_id")).value_or("");
  message.name = TRY(fields.text("tool_name")).value_or("");
  return message;
}

Result<std::vector<ChatMessage>> parse_messages(const Fields& fields, IgnoredFields& ignored) {
  const array* list = TRY(fields.array("messages"));
  if (list == nullptr || list->empty()) {
    return bad_field("messages", list == nullptr ? "missing" : "empty",
                     "a list of at least one message");
  }
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    messages.push_back(TRY(parse_message((*list)[i], fmt::format("messages[{}]", i), ignored)));
  }
  name_calls(messages);
  return messages;
}

Result<ToolFunction> parse_tool(const value& item, const std::string& path,
                                IgnoredFields& ignored) {
  if (!item.is_object()) return bad_field(path, show_value(item), "an object");
  TRY(check_fields(item.get_object(), kInTool, path + ".", ignored));
  const object* function = TRY(Fields(item.get_object(), path + ".").object("function"));
  if (function == nullptr) return bad_field(path + ".function", "missing", "an object");
  const Fields fields(*function, path + ".function.");
  const auto name = TRY(fields.text("name"));
  if (!name || name->empty()) return bad_field(fields.path("name"), "missing", "a string");
  ToolFunction tool;
  tool.name = *name;
  tool.description = TRY(fields.text("description")).value_or("");
  const object* parameters = TRY(fields.object("parameters"));
  if (parameters != nullptr) tool.parameters = to_text(value(*parameters));
  return tool;
}

Status parse_tools(const Fields& fields, ToolUse& use, IgnoredFields& ignored) {
  const array* tools = TRY(fields.array("tools"));
  const size_t num_tools = tools == nullptr ? 0 : tools->size();
  TRY(check_tool_count(num_tools, kUsualMaxTools));
  for (size_t i = 0; i < num_tools; ++i) {
    use.functions.push_back(TRY(parse_tool((*tools)[i], fmt::format("tools[{}]", i), ignored)));
  }
  return {};
}

// The prompt through the template, after the ids of an earlier answer if there are any.
Status add_templated(const Fields& fields, const ServingModel& model, PromptSource& source) {
  std::vector<ChatMessage> messages;
  const auto system = TRY(fields.text("system"));
  if (system && !system->empty()) messages.push_back({"system", std::string(*system)});
  messages.push_back({"user", std::string(TRY(fields.text("prompt")).value_or(""))});
  ChatPrompt conversation = make_chat_prompt(messages);
  const array* context = TRY(fields.array("context"));
  if (context != nullptr) {
    conversation.earlier =
        TRY(parse_ids(*context, "context", model.info.vocab_size, model.max_context));
  }
  source.items.emplace_back(std::move(conversation));
  return {};
}

Status add_prompt(const Fields& fields, const ServingModel& model, Request& request,
                  PromptSource& source) {
  source.param = "prompt";
  const bool raw = TRY(fields.boolean("raw")).value_or(false);
  const auto prompt = TRY(fields.text("prompt"));
  const auto suffix = TRY(fields.text("suffix"));
  if (suffix && !suffix->empty()) {
    source.items.emplace_back(
        TRY(infill_ids(prompt.value_or(""), *suffix, "suffix", model, request)));
    return {};
  }
  if (raw || model.text.chat_template == nullptr) {
    source.items.emplace_back(PromptText(prompt.value_or("")));
    return {};
  }
  return add_templated(fields, model, source);
}

}  // namespace

bool is_load_request(const object& body) {
  return is_empty(body.if_contains("messages")) && is_empty(body.if_contains("prompt")) &&
         is_empty(body.if_contains("suffix"));
}

Result<ParsedRequest> parse_ollama_chat(const object& body, const ServingModel& model) {
  ParsedRequest parsed;
  GenerationRequest& request = parsed.request;
  IgnoredFields ignored;
  OllamaAnswer answer;
  answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInOllamaChat, "", ignored));
  const Fields fields(body);
  TRY(parse_common(fields, model, request, ignored));
  TRY(parse_tools(fields, request.form.tools, ignored));
  parsed.prompts.param = "messages";
  parsed.prompts.items.emplace_back(make_chat_prompt(TRY(parse_messages(fields, ignored))));
  answer.num_top = request.prototype.num_logprobs.value_or(0);
  name_ignored(ignored, request.headers);
  parsed.renderer = make_ollama_renderer(model, std::move(answer));
  return parsed;
}

Result<ParsedRequest> parse_ollama_generate(const object& body, const ServingModel& model) {
  ParsedRequest parsed;
  GenerationRequest& request = parsed.request;
  IgnoredFields ignored;
  OllamaAnswer answer;
  answer.is_chat = false;
  answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInOllamaGenerate, "", ignored));
  const Fields fields(body);
  TRY(parse_common(fields, model, request, ignored));
  TRY(add_prompt(fields, model, request.prototype, parsed.prompts));
  answer.with_context = !TRY(fields.boolean("raw")).value_or(false);
  answer.num_top = request.prototype.num_logprobs.value_or(0);
  name_ignored(ignored, request.headers);
  parsed.renderer = make_ollama_renderer(model, std::move(answer));
  return parsed;
}

}  // namespace headrace
