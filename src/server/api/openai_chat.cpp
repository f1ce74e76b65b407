// Messages of a chat request to prompt ids, by the model's template.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "server/api/api_fields.h"
#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/openai.h"

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

// What the model would never see is refused, not dropped.
Error no_place(std::string_view param) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("this model's chat template has no place for {}", param),
               "leave it out, or use a model that was made for it", std::string(param)};
}

// Reads messages for one template.
class MessageReader {
 public:
  MessageReader(std::string_view source, IgnoredFields& ignored)
      : source_(source),
        has_developer_(mentions("developer")),
        has_calls_(mentions("tool_calls")),
        ignored_(ignored) {}

  Result<boost::json::object> read(const boost::json::value& value, size_t message_idx);

 private:
  bool mentions(std::string_view name) const {
    return source_.find(name) != std::string_view::npos;
  }
  Result<std::string> join_parts(const boost::json::array& parts, size_t message_idx);
  Result<boost::json::value> content(const boost::json::object& message, size_t message_idx);
  Result<boost::json::value> calls(const boost::json::value& calls, size_t message_idx) const;

  const std::string_view source_;
  const bool has_developer_;
  const bool has_calls_;
  IgnoredFields& ignored_;
};

// Text parts are joined by newlines; reasoning that a client replays is left out.
Result<std::string> MessageReader::join_parts(const boost::json::array& parts, size_t message_idx) {
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
    if (part != nullptr) TRY(check_fields(*part, kInPart, "messages[].content[].", ignored_));
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

// Null is empty: clients write it where there is nothing to say. Only an assistant's may be absent.
Result<boost::json::value> MessageReader::content(const boost::json::object& message,
                                                  size_t message_idx) {
  const boost::json::value* content = message.if_contains("content");
  if (content == nullptr && view(message.at("role").get_string()) != "assistant") {
    return bad_message(message_idx, "content", "missing", "a string or a list of text parts");
  }
  if (content == nullptr || content->is_null()) return boost::json::value("");
  if (content->is_string()) return boost::json::value(*content);
  if (content->is_array()) {
    const std::string joined = TRY(join_parts(content->get_array(), message_idx));
    return boost::json::value(joined);
  }
  return bad_message(message_idx, "content", show_value(*content),
                     "a string or a list of text parts");
}

// Templates want arguments as an object; clients send them as JSON text.
Result<boost::json::value> MessageReader::calls(const boost::json::value& calls,
                                                size_t message_idx) const {
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
  if (!converted.empty() && !has_calls_) {
    return no_place(fmt::format("messages[{}].tool_calls", message_idx));
  }
  return boost::json::value(std::move(converted));
}

Result<boost::json::object> MessageReader::read(const boost::json::value& value,
                                                size_t message_idx) {
  const boost::json::object* message = value.if_object();
  if (message == nullptr) return bad_message(message_idx, "", show_value(value), "an object");
  const boost::json::value* role = message->if_contains("role");
  if (role == nullptr) return bad_message(message_idx, "role", "missing", kRoleNames);
  bool known = false;
  for (const std::string_view name : kRoles) {
    known = known || (role->is_string() && view(role->get_string()) == name);
  }
  if (!known) return bad_message(message_idx, "role", show_value(*role), kRoleNames);
  TRY(check_fields(*message, kInMessage, "messages[].", ignored_, source_));
  boost::json::object converted = *message;
  converted["content"] = TRY(content(*message, message_idx));
  if (view(role->get_string()) == "developer" && !has_developer_) converted["role"] = "system";
  const boost::json::value* given = message->if_contains("tool_calls");
  if (given != nullptr && !given->is_null()) {
    converted["tool_calls"] = TRY(calls(*given, message_idx));
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
  if (function == nullptr) return {};
  return check_fields(*function, kInFunction, path + ".function.", ignored);
}

// tools, unless the client says that none may be used. Calls are text: a forced one is refused.
Status add_tools(const Fields& fields, boost::json::object& options, IgnoredFields& ignored) {
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
  for (size_t i = 0; i < tools->size(); ++i) TRY(check_tool((*tools)[i], i, ignored));
  if (!is_none) options["tools"] = *tools;
  return {};
}

// Variables of the template. One that it does not mention cannot change the prompt.
Status add_variables(const Fields& fields, std::string_view source, boost::json::object& options,
                     IgnoredFields& ignored) {
  const auto add_unread = [&](std::string_view path, std::string_view name) {
    if (ignored.is_full()) return ignored.count();
    if (source.find(name) == std::string_view::npos) ignored.add(path);
  };
  const boost::json::object* variables = TRY(fields.object("chat_template_kwargs"));
  if (variables != nullptr) {
    options = *variables;
    for (const auto& [key, value] : *variables) {
      const std::string_view name(key.data(), key.size());
      add_unread(fmt::format("chat_template_kwargs.{}", name), name);
    }
  }
  const auto effort = TRY(fields.text("reasoning_effort"));
  if (effort) {
    options["reasoning_effort"] = *effort;
    add_unread("reasoning_effort", "reasoning_effort");
  }
  const boost::json::array* documents = TRY(fields.array("documents"));
  if (documents != nullptr && !documents->empty()) options["documents"] = *documents;
  const bool goes_on = TRY(fields.boolean("continue_final_message")).value_or(false);
  const bool begins = TRY(fields.boolean("add_generation_prompt")).value_or(!goes_on);
  if (goes_on && begins) {
    return bad_field("add_generation_prompt", "true", "false when continue_final_message is true");
  }
  options["add_generation_prompt"] = begins;
  if (goes_on) options["continue_final_message"] = true;
  return {};
}

Result<std::string> render(const ChatTemplate& chat_template, const boost::json::object& options) {
  auto rendered = chat_template.render(to_text(boost::json::value(options)));
  if (rendered.ok()) return rendered;
  Error error = rendered.error();
  if (error.code != ErrorCode::kExhausted) error.code = ErrorCode::kInvalidArgument;
  error.param = "messages";
  return error;
}

// Content that comes beside the messages must reach the prompt: the template reads it, or the
// request is refused. A template may mention a name and still leave it out, so its output decides.
Status check_reaches_prompt(const ChatTemplate& chat_template, boost::json::object& options,
                            std::string_view name, const std::string& rendered) {
  const auto found = options.find(name);
  if (found == options.end()) return {};
  boost::json::value taken = std::move(found->value());
  options.erase(found);
  const auto without = render(chat_template, options);
  options[name] = std::move(taken);
  if (without.ok() && *without == rendered) return no_place(name);
  return {};
}

}  // namespace

Result<std::vector<int32_t>> chat_prompt_ids(const boost::json::object& body,
                                             const ServingModel& model, const EncodeLimits& limits,
                                             IgnoredFields& ignored) {
  if (model.text.chat_template == nullptr) {
    return Error{ErrorCode::kUnsupported, "this model has no chat template",
                 "use /v1/completions, or a chat-tuned model", "messages"};
  }
  const ChatTemplate& chat_template = *model.text.chat_template;
  const Fields fields(body);
  boost::json::object options;
  TRY(add_variables(fields, chat_template.source(), options, ignored));
  options["messages"] = TRY(convert_messages(fields, chat_template.source(), ignored));
  TRY(add_tools(fields, options, ignored));
  const std::string rendered = TRY(render(chat_template, options));
  for (const std::string_view name : {"tools", "documents"}) {
    if (fields.find(name) == nullptr) continue;
    TRY(check_reaches_prompt(chat_template, options, name, rendered));
  }
  auto ids = model.text.encode_chat(rendered, limits);
  if (ids.ok()) return ids;
  Error error = ids.error();
  if (error.param.empty()) error.param = "messages";
  return error;
}

}  // namespace headrace
