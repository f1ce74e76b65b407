// Messages of a chat request to prompt ids, by the model's template.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "server/fields.h"
#include "server/json.h"
#include "server/openai.h"

namespace headrace {
namespace {

constexpr size_t kMaxTools = 128;
constexpr std::string_view kRoles[] = {"system", "user",      "assistant",
                                       "tool",   "developer", "function"};
constexpr std::string_view kRoleNames = "system, developer, user, assistant or tool";

std::string_view view(const boost::json::string& text) { return {text.data(), text.size()}; }

Error bad_message(size_t message_idx, std::string_view field, std::string_view found,
                  std::string_view needed) {
  const std::string path =
      fmt::format("messages[{}]{}{}", message_idx, field.empty() ? "" : ".", field);
  return bad_field(path, found, needed);
}

// Text parts are joined by newlines; reasoning that a client replays is left out.
Result<std::string> join_parts(const boost::json::array& parts, size_t message_idx) {
  std::string joined;
  bool first = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string field = fmt::format("content[{}]", i);
    const boost::json::object* part = parts[i].if_object();
    if (part == nullptr && !parts[i].is_string()) {
      return bad_message(message_idx, field, show_value(parts[i]), "an object or a string");
    }
    const boost::json::value* type = part == nullptr ? nullptr : part->if_contains("type");
    if (part != nullptr && (type == nullptr || !type->is_string())) {
      return bad_message(message_idx, field, "without a type", "a part of type 'text'");
    }
    if (part != nullptr && view(type->get_string()) == "thinking") continue;
    if (part != nullptr && view(type->get_string()) != "text") {
      return bad_message(message_idx, field, fmt::format("of type {}", show_value(*type)),
                         "of type 'text': this model reads text only");
    }
    const boost::json::value* text = part == nullptr ? &parts[i] : part->if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return bad_message(message_idx, field + ".text",
                         text == nullptr ? "missing" : show_value(*text), "a string");
    }
    if (!first) joined += '\n';
    first = false;
    joined += view(text->get_string());
  }
  return joined;
}

Result<boost::json::value> convert_content(const boost::json::object& message, size_t message_idx,
                                           std::string_view role) {
  const boost::json::value* content = message.if_contains("content");
  if (content == nullptr || content->is_null()) {
    const bool may_lack = role == "assistant";
    if (may_lack) return boost::json::value("");
    return bad_message(message_idx, "content", "missing", "a string or a list of text parts");
  }
  if (content->is_string()) return boost::json::value(*content);
  if (content->is_array()) {
    const std::string joined = TRY(join_parts(content->get_array(), message_idx));
    return boost::json::value(joined);
  }
  return bad_message(message_idx, "content", show_value(*content),
                     "a string or a list of text parts");
}

// Templates want arguments as an object; clients send them as JSON text.
Result<boost::json::value> convert_tool_calls(const boost::json::value& calls, size_t message_idx) {
  if (!calls.is_array()) return bad_message(message_idx, "tool_calls", show_value(calls), "a list");
  boost::json::array converted = calls.get_array();
  for (size_t i = 0; i < converted.size(); ++i) {
    boost::json::object* call = converted[i].if_object();
    boost::json::value* function = call == nullptr ? nullptr : call->if_contains("function");
    if (function == nullptr || !function->is_object()) {
      return bad_message(message_idx, fmt::format("tool_calls[{}]", i), show_value(converted[i]),
                         "an object with a function");
    }
    boost::json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    auto parsed = parse_body(view(arguments->get_string()));
    if (parsed.ok() && parsed->is_object()) *arguments = std::move(parsed).value();
  }
  return boost::json::value(std::move(converted));
}

Result<boost::json::object> convert_message(const boost::json::value& value, size_t message_idx,
                                            bool has_developer) {
  const boost::json::object* message = value.if_object();
  if (message == nullptr) return bad_message(message_idx, "", show_value(value), "an object");
  const boost::json::value* role = message->if_contains("role");
  if (role == nullptr) return bad_message(message_idx, "role", "missing", kRoleNames);
  bool known = false;
  for (const std::string_view name : kRoles) {
    known = known || (role->is_string() && view(role->get_string()) == name);
  }
  if (!known) return bad_message(message_idx, "role", show_value(*role), kRoleNames);
  boost::json::object converted = *message;
  const std::string_view name = view(role->get_string());
  converted["content"] = TRY(convert_content(*message, message_idx, name));
  if (name == "developer" && !has_developer) converted["role"] = "system";
  const boost::json::value* calls = message->if_contains("tool_calls");
  if (calls != nullptr && !calls->is_null()) {
    converted["tool_calls"] = TRY(convert_tool_calls(*calls, message_idx));
  } else {
    converted.erase("tool_calls");
  }
  return converted;
}

Result<boost::json::array> convert_messages(const Fields& fields, const ServingModel& model) {
  const boost::json::array* messages = TRY(fields.array("messages"));
  if (messages == nullptr || messages->empty()) {
    return bad_field("messages", messages == nullptr ? "missing" : "empty",
                     "a list of at least one message");
  }
  const bool has_developer =
      model.text.chat_template->source().find("developer") != std::string::npos;
  boost::json::array converted;
  converted.reserve(messages->size());
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = TRY(convert_message((*messages)[i], i, has_developer));
    converted.emplace_back(std::move(message));
  }
  return converted;
}

// tools, unless the client says that none may be used. Calls are text: a forced one is refused.
Status add_tools(const Fields& fields, boost::json::object& options) {
  const boost::json::value* choice = fields.find("tool_choice");
  const bool is_none = choice != nullptr && choice->is_string() && choice->get_string() == "none";
  const bool is_auto = choice == nullptr || (choice->is_string() && choice->get_string() == "auto");
  if (!is_none && !is_auto) {
    Error error = bad_field("tool_choice", show_value(*choice), "\"auto\" or \"none\"");
    error.code = ErrorCode::kUnsupported;
    error.hint = "a forced tool call is not supported by this server yet";
    return error;
  }
  const boost::json::array* tools = TRY(fields.array("tools"));
  if (tools == nullptr || tools->empty()) return {};
  if (tools->size() > kMaxTools) {
    return bad_field("tools", fmt::format("a list of {}", tools->size()),
                     fmt::format("at most {} tools", kMaxTools));
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    if (!(*tools)[i].is_object()) {
      return bad_field(fmt::format("tools[{}]", i), show_value((*tools)[i]), "an object");
    }
  }
  if (!is_none) options["tools"] = *tools;
  return {};
}

Status add_variables(const Fields& fields, boost::json::object& options) {
  const boost::json::object* variables = TRY(fields.object("chat_template_kwargs"));
  if (variables != nullptr) options = *variables;
  const auto effort = TRY(fields.text("reasoning_effort"));
  if (effort) options["reasoning_effort"] = *effort;
  const boost::json::array* documents = TRY(fields.array("documents"));
  if (documents != nullptr) options["documents"] = *documents;
  const bool goes_on = TRY(fields.boolean("continue_final_message")).value_or(false);
  const bool begins = TRY(fields.boolean("add_generation_prompt")).value_or(!goes_on);
  if (goes_on && begins) {
    return bad_field("add_generation_prompt", "true", "false when continue_final_message is true");
  }
  options["add_generation_prompt"] = begins;
  if (goes_on) options["continue_final_message"] = true;
  return {};
}

}  // namespace

Result<std::vector<int32_t>> chat_prompt_ids(const boost::json::object& body,
                                             const ServingModel& model) {
  if (model.text.chat_template == nullptr) {
    return Error{ErrorCode::kUnsupported, "this model has no chat template",
                 "use /v1/completions, or a chat-tuned model", "messages"};
  }
  const Fields fields(body);
  boost::json::object options;
  TRY(add_variables(fields, options));
  options["messages"] = TRY(convert_messages(fields, model));
  TRY(add_tools(fields, options));
  auto rendered = model.text.chat_template->render(to_text(boost::json::value(std::move(options))));
  if (!rendered.ok()) {
    Error error = rendered.error();
    error.code = ErrorCode::kInvalidArgument;
    error.param = "messages";
    return error;
  }
  return model.text.encode_chat(*rendered);
}

}  // namespace headrace
