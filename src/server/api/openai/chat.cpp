// Messages of a chat body, and what stands beside them, in the form that templates read.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/json.h"
#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/tool_use.h"

namespace headrace {
namespace {

constexpr std::string_view kRoles[] = {"system", "user",      "assistant",
                                       "tool",   "developer", "function"};
constexpr std::string_view kRoleNames = "system, developer, user, assistant or tool";

Error bad_message(size_t message_idx, std::string_view field, std::string_view found,
                  std::string_view needed) {
  const std::string path =
      fmt::format("messages[{}]{}{}", message_idx, field.empty() ? "" : ".", field);
  return bad_field(path, found, needed);
}

// Reads messages for one template.
class MessageReader {
 public:
  MessageReader(std::string_view source, IgnoredFields& ignored)
      : source_(source), ignored_(ignored) {}

  Result<boost::json::object> read(const boost::json::value& value, size_t message_idx);

 private:
  Result<std::string_view> member_of_part(const boost::json::object& part, std::string_view field,
                                          const boost::json::object& message, size_t message_idx);
  Result<std::string> join_parts(const boost::json::object& message, size_t message_idx);
  Result<boost::json::value> content(const boost::json::object& message, size_t message_idx);

  const std::string_view source_;
  IgnoredFields& ignored_;
};

// The member of a part that holds its text, which has the name of the type; empty: reasoning that a
// client replays.
Result<std::string_view> MessageReader::member_of_part(const boost::json::object& part,
                                                       std::string_view field,
                                                       const boost::json::object& message,
                                                       size_t message_idx) {
  const boost::json::value* type = part.if_contains("type");
  if (type == nullptr || !type->is_string()) {
    return bad_message(message_idx, field, "without a type", "a part of type 'text'");
  }
  TRY(check_fields(part, kInPart, "messages[].content[].", ignored_));
  const std::string_view name = text_view(type->get_string());
  if (name == "thinking") return std::string_view();
  const bool refuses = name == "refusal" && message.at("role") == "assistant";
  if (name == "text" || refuses) return name;
  return bad_message(message_idx, field, fmt::format("of type {}", show_value(*type)),
                     "of type 'text': this model reads text only");
}

// Parts are joined by newlines.
Result<std::string> MessageReader::join_parts(const boost::json::object& message,
                                              size_t message_idx) {
  const boost::json::array& parts = message.at("content").get_array();
  std::string joined;
  bool first = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string field = fmt::format("content[{}]", i);
    const boost::json::object* part = parts[i].if_object();
    if (part == nullptr && !parts[i].is_string()) {
      return bad_message(message_idx, field, show_value(parts[i]), "an object or a string");
    }
    const std::string_view member =
        part == nullptr ? "text" : TRY(member_of_part(*part, field, message, message_idx));
    if (member.empty()) continue;
    const boost::json::value* text = part == nullptr ? &parts[i] : part->if_contains(member);
    if (text == nullptr || !text->is_string()) {
      return bad_message(message_idx, fmt::format("{}.{}", field, member),
                         text == nullptr ? "missing" : show_value(*text), "a string");
    }
    if (!first) joined += '\n';
    first = false;
    joined += text_view(text->get_string());
  }
  return joined;
}

// Null is empty: clients write it where there is nothing to say. Only an assistant's may be absent.
Result<boost::json::value> MessageReader::content(const boost::json::object& message,
                                                  size_t message_idx) {
  const boost::json::value* content = message.if_contains("content");
  if (content == nullptr && text_view(message.at("role").get_string()) != "assistant") {
    return bad_message(message_idx, "content", "missing", "a string or a list of text parts");
  }
  if (content == nullptr || content->is_null()) return boost::json::value("");
  if (content->is_string()) return boost::json::value(*content);
  if (content->is_array()) {
    const std::string joined = TRY(join_parts(message, message_idx));
    return boost::json::value(joined);
  }
  return bad_message(message_idx, "content", show_value(*content),
                     "a string or a list of text parts");
}

Status check_calls(const boost::json::value& calls, size_t message_idx) {
  if (!calls.is_array()) return bad_message(message_idx, "tool_calls", show_value(calls), "a list");
  const boost::json::array& list = calls.get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const boost::json::object* call = list[i].if_object();
    const boost::json::value* function = call == nullptr ? nullptr : call->if_contains("function");
    if (function == nullptr || !function->is_object()) {
      return bad_message(message_idx, fmt::format("tool_calls[{}]", i), show_value(list[i]),
                         "an object with a function");
    }
  }
  return {};
}

Result<boost::json::object> MessageReader::read(const boost::json::value& value,
                                                size_t message_idx) {
  const boost::json::object* message = value.if_object();
  if (message == nullptr) return bad_message(message_idx, "", show_value(value), "an object");
  const boost::json::value* role = message->if_contains("role");
  if (role == nullptr) return bad_message(message_idx, "role", "missing", kRoleNames);
  bool known = false;
  for (const std::string_view name : kRoles) {
    known = known || (role->is_string() && text_view(role->get_string()) == name);
  }
  if (!known) return bad_message(message_idx, "role", show_value(*role), kRoleNames);
  TRY(check_fields(*message, kInMessage, "messages[].", ignored_, source_));
  boost::json::object converted = *message;
  converted["content"] = TRY(content(*message, message_idx));
  const boost::json::value* calls = message->if_contains("tool_calls");
  if (calls != nullptr && !calls->is_null()) {
    TRY(check_calls(*calls, message_idx));
  } else {
    converted.erase("tool_calls");
  }
  return converted;
}

Result<boost::json::array> convert_messages(const Fields& fields, std::string_view source,
                                            IgnoredFields& ignored) {
  const boost::json::array* messages = TRY(fields.array("messages"));
  if (messages == nullptr || messages->empty()) {
    return bad_field("messages", messages == nullptr ? "missing" : "empty",
                     "a list of at least one message");
  }
  MessageReader reader(source, ignored);
  boost::json::array converted;
  converted.reserve(messages->size());
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = TRY(reader.read((*messages)[i], i));
    converted.emplace_back(std::move(message));
  }
  return converted;
}

Status check_tool(const boost::json::value& tool, size_t tool_idx, IgnoredFields& ignored) {
  const std::string path = fmt::format("tools[{}]", tool_idx);
  if (!tool.is_object()) return bad_field(path, show_value(tool), "an object");
  const Fields fields(tool.get_object(), path + ".");
  const auto type = TRY(fields.text("type"));
  if (type != "function") {
    Error error =
        bad_field(fields.path("type"), type ? show_value(boost::json::string(*type)) : "missing",
                  "\"function\"");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  TRY(check_fields(tool.get_object(), kInTool, path + ".", ignored));
  const boost::json::object* function = TRY(fields.object("function"));
  if (function == nullptr) return bad_field(fields.path("function"), "missing", "an object");
  return check_fields(*function, kInFunction, path + ".function.", ignored);
}

ToolFunction read_function(const boost::json::object& function) {
  const auto text_of = [&](std::string_view name) -> std::string {
    const boost::json::value* value = function.if_contains(name);
    return value != nullptr && value->is_string() ? std::string(text_view(value->get_string()))
                                                  : "";
  };
  ToolFunction made{text_of("name"), text_of("description"), {}, false};
  const boost::json::value* parameters = function.if_contains("parameters");
  if (parameters != nullptr && parameters->is_object()) made.parameters = to_text(*parameters);
  const boost::json::value* strict = function.if_contains("strict");
  made.strict = strict != nullptr && strict->is_bool() && strict->get_bool();
  return made;
}

// "auto", "none", "required", or {"type": "function", "function": {"name": ...}}.
Result<ToolChoice> read_choice(const Fields& fields) {
  using Kind = ToolChoice::Kind;
  const boost::json::value* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return ToolChoice{};
  if (*choice == "none") return ToolChoice{Kind::kNone, {}};
  if (*choice == "required" || *choice == "any") return ToolChoice{Kind::kRequired, {}};
  const boost::json::value* function = json_member(choice, "function");
  const boost::json::value* name = json_member(function != nullptr ? function : choice, "name");
  if (name != nullptr && name->is_string()) {
    return ToolChoice{Kind::kNamed, std::string(text_view(name->get_string()))};
  }
  return bad_field("tool_choice", show_value(*choice),
                   "\"auto\", \"none\", \"required\" or the name of a function");
}

// Whether tools reach the prompt. Broken fields are for those who read them.
bool offers_tools(const boost::json::object& body) {
  const boost::json::value* choice = body.if_contains("tool_choice");
  return has_tools(body) && (choice == nullptr || *choice != "none");
}

// Templates are given the tools as they came.
Status add_tools(const Fields& fields, ChatPrompt& conversation, ToolUse& use,
                 IgnoredFields& ignored) {
  use.choice = TRY(read_choice(fields));
  use.parallel = TRY(fields.boolean("parallel_tool_calls")).value_or(true);
  const boost::json::array* tools = TRY(fields.array("tools"));
  if (tools == nullptr || tools->empty()) return {};
  TRY(check_tool_count(tools->size(), kUsualMaxTools));
  for (size_t i = 0; i < tools->size(); ++i) {
    TRY(check_tool((*tools)[i], i, ignored));
    use.functions.push_back(read_function((*tools)[i].at("function").get_object()));
  }
  if (use.choice.kind == ToolChoice::Kind::kNone) return {};
  conversation.variables["tools"] = *tools;
  conversation.required.emplace_back("tools");
  return {};
}

// Variables of the template. One that it does not mention cannot change the prompt.
Status add_variables(const Fields& fields, std::string_view source, boost::json::object& variables,
                     IgnoredFields& ignored) {
  const auto add_unread = [&](std::string_view path, std::string_view name) {
    if (ignored.is_full()) return ignored.count();
    if (source.find(name) == std::string_view::npos) ignored.add(path);
  };
  const boost::json::object* given = TRY(fields.object("chat_template_kwargs"));
  if (given != nullptr) {
    variables = *given;
    for (const auto& [key, value] : *given) {
      const std::string_view name(key.data(), key.size());
      add_unread(fmt::format("chat_template_kwargs.{}", name), name);
    }
  }
  return {};
}

// Names of one thing in several servers: how many tokens reasoning may have; -1: any number.
constexpr std::string_view kBudgets[] = {"thinking_budget", "thinking_budget_tokens",
                                         "thinking_token_budget", "reasoning_budget",
                                         "max_reasoning_tokens"};

Status add_budget(const Fields& fields, std::string_view name, ReasoningUse& use) {
  const auto budget = TRY(fields.integer(name, -1, INT32_MAX));
  if (budget && *budget >= 0) use.max_tokens = static_cast<int32_t>(*budget);
  return {};
}

// {"type": "enabled", "budget_tokens": 100}, or {"effort": "low", "max_tokens": 100}.
Status read_reasoning_object(const Fields& fields, std::string_view name, ReasoningUse& use) {
  const boost::json::object* object = TRY(fields.object(name));
  if (object == nullptr) return {};
  const Fields inner(*object, fmt::format("{}.", name));
  const auto type = TRY(inner.text("type"));
  if (type) use.enabled = *type != "disabled";
  const auto enabled = TRY(inner.boolean("enabled"));
  if (enabled) use.enabled = *enabled;
  const auto effort = TRY(inner.text("effort"));
  if (effort) use.effort = *effort;
  TRY(add_budget(inner, "budget_tokens", use));
  return add_budget(inner, "max_tokens", use);
}

// How much the model reasons. What its template does not read is named in the header.
Result<ReasoningUse> read_reasoning(const Fields& fields, std::string_view source,
                                    IgnoredFields& ignored) {
  ReasoningUse use;
  for (const std::string_view name : {"enable_thinking", "think"}) {
    const auto enabled = TRY(fields.boolean(name));
    if (enabled) use.enabled = *enabled;
  }
  TRY(read_reasoning_object(fields, "thinking", use));
  TRY(read_reasoning_object(fields, "reasoning", use));
  const auto effort = TRY(fields.text("reasoning_effort"));
  if (effort) use.effort = *effort;
  if (use.effort == "none") use.enabled = false;
  if (effort && source.find("reasoning_effort") == std::string_view::npos && !use.enabled) {
    ignored.add("reasoning_effort");
  }
  for (const std::string_view name : kBudgets) TRY(add_budget(fields, name, use));
  use.apart = TRY(fields.boolean("separate_reasoning")).value_or(true);
  const auto format = TRY(fields.text("reasoning_format"));
  if (format) use.apart = *format != "none";
  return use;
}

Status add_documents(const Fields& fields, ChatPrompt& conversation) {
  const boost::json::array* documents = TRY(fields.array("documents"));
  if (documents == nullptr || documents->empty()) return {};
  conversation.variables["documents"] = *documents;
  conversation.required.emplace_back("documents");
  return {};
}

// Whose turn it is after the messages.
Status add_turn(const Fields& fields, boost::json::object& variables) {
  const bool goes_on = TRY(fields.boolean("continue_final_message")).value_or(false);
  const bool begins = TRY(fields.boolean("add_generation_prompt")).value_or(!goes_on);
  if (goes_on && begins) {
    return bad_field("add_generation_prompt", "true", "false when continue_final_message is true");
  }
  variables["add_generation_prompt"] = begins;
  if (goes_on) variables["continue_final_message"] = true;
  return {};
}

// What a body says beside its messages, in the order in which faults are named.
Status read_settings(const Fields& fields, std::string_view source, ChatPrompt& conversation,
                     IgnoredFields& ignored) {
  TRY(add_variables(fields, source, conversation.variables, ignored));
  TRY(add_documents(fields, conversation));
  return add_turn(fields, conversation.variables);
}

Status read_form(const Fields& fields, std::string_view source, ChatPrompt& conversation,
                 AnswerForm& form, IgnoredFields& ignored) {
  TRY(add_tools(fields, conversation, form.tools, ignored));
  form.reasoning = TRY(read_reasoning(fields, source, ignored));
  return {};
}

}  // namespace

Result<ChatPrompt> parse_conversation(const boost::json::object& body, const ServingModel& model,
                                      AnswerForm& form, IgnoredFields& ignored) {
  const std::string_view source = TRY(chat_template_source(model, offers_tools(body)));
  const Fields fields(body);
  ChatPrompt conversation;
  TRY(read_settings(fields, source, conversation, ignored));
  conversation.variables["messages"] = TRY(convert_messages(fields, source, ignored));
  TRY(read_form(fields, source, conversation, form, ignored));
  return conversation;
}

Status check_conversation_fields(const boost::json::object& body) {
  const Fields fields(body);
  ChatPrompt conversation;
  AnswerForm form;
  IgnoredFields ignored;  // no template reads them: nothing to name
  TRY(read_settings(fields, {}, conversation, ignored));
  return read_form(fields, {}, conversation, form, ignored);
}

}  // namespace headrace
