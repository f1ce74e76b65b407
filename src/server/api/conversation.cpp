#include "server/api/conversation.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <map>

#include "server/api/json.h"
#include "server/api/parts/call_ids.h"

namespace headrace {
namespace {

// Names that show whether a value reached the prompt: how many are tried, and how short they are.
constexpr size_t kMaxProofs = 16;
constexpr size_t kMinProofBytes = 4;

Error no_place(std::string_view param) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("this model's chat template has no place for {}", param),
               "leave it out, or use a model that was made for it", std::string(param)};
}

// Templates want arguments as an object; clients send them as JSON text, or as no text where there
// are none.
void unfold_arguments(boost::json::value& call) {
  boost::json::object* object = call.if_object();
  boost::json::value* function = object == nullptr ? nullptr : object->if_contains("function");
  if (function == nullptr || !function->is_object()) return;
  boost::json::value* arguments = function->get_object().if_contains("arguments");
  if (arguments == nullptr || !arguments->is_string()) return;
  const std::string_view text = text_view(arguments->get_string());
  auto parsed = parse_body(text.empty() ? "{}" : text);
  if (parsed.ok() && parsed->is_object()) *arguments = std::move(parsed).value();
}

Status fit_message(boost::json::object& message, size_t message_idx, std::string_view source) {
  const auto mentions = [&](std::string_view name) {
    return source.find(name) != std::string_view::npos;
  };
  boost::json::value& role = message["role"];
  if (role == "developer" && !mentions("developer")) role = "system";
  boost::json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return {};
  for (boost::json::value& call : calls->get_array()) unfold_arguments(call);
  if (!calls->get_array().empty() && !mentions("tool_calls")) {
    return no_place(fmt::format("messages[{}].tool_calls", message_idx));
  }
  return {};
}

std::string text_member(const boost::json::object& message, std::string_view name) {
  const boost::json::value* text = message.if_contains(name);
  return text != nullptr && text->is_string() ? std::string(text_view(text->get_string())) : "";
}

// What was said before a call, joined to the reasoning before it.
void join_texts(boost::json::object& message) {
  const boost::json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array() || calls->get_array().empty()) return;
  const std::string content = text_member(message, "content");
  if (content.empty()) return;
  constexpr std::string_view kNames[] = {"reasoning_content", "thinking", "reasoning"};
  for (const std::string_view name : kNames) {
    const std::string reasoning = text_member(message, name);
    if (reasoning.empty()) continue;
    for (const std::string_view each : kNames) message.erase(each);
    message["reasoning_content"] = reasoning + "\n" + content;
    message["content"] = "";
    return;
  }
}

Status fit_messages(boost::json::object& variables, std::string_view source, bool one_text) {
  boost::json::array& messages = variables["messages"].get_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    boost::json::object& message = messages[i].get_object();
    TRY(fit_message(message, i, source));
    if (one_text) join_texts(message);
  }
  return {};
}

// Does the template write a message of this role that comes after others? Some refuse it, some drop
// it.
bool takes_later(const ChatTemplate& chat_template, const std::string& role) {
  constexpr std::string_view kProbe = "a later word of the system";
  const auto probe = make_chat_prompt(
      {{"user", "a"}, {"assistant", "b"}, {role, std::string(kProbe)}, {"user", "c"}});
  const auto rendered = chat_template.render(to_text(boost::json::value(probe.variables)));
  return rendered.ok() && rendered->find(kProbe) != std::string::npos;
}

// What the system says after others comes from the user where the template would lose it.
void place_later_system(const ChatTemplate& chat_template, boost::json::object& variables) {
  std::map<std::string, bool> taken;  // by role
  boost::json::array& messages = variables["messages"].get_array();
  for (size_t i = 1; i < messages.size(); ++i) {
    boost::json::object& message = messages[i].get_object();
    const std::string role = text_member(message, "role");
    if (role != "system" && role != "developer") continue;
    if (!taken.contains(role)) taken[role] = takes_later(chat_template, role);
    if (!taken[role]) message["role"] = "user";
  }
}

// A call whose arguments are no JSON object, as one that was cut; empty: there is none.
std::string broken_call(const boost::json::object& variables) {
  for (const boost::json::value& message : variables.at("messages").as_array()) {
    const boost::json::value* calls = json_member(&message, "tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (const boost::json::value& call : calls->get_array()) {
      const boost::json::value* function = json_member(&call, "function");
      const boost::json::value* arguments = json_member(function, "arguments");
      const boost::json::value* name = json_member(function, "name");
      if (arguments != nullptr && arguments->is_string()) {
        return name == nullptr ? "a function" : show_value(*name);
      }
    }
  }
  return {};
}

Result<std::string> render(const ChatTemplate& chat_template,
                           const boost::json::object& variables) {
  auto rendered = chat_template.render(to_text(boost::json::value(variables)));
  if (rendered.ok()) return rendered;
  Error error = rendered.error();
  // What a template raises it says in its own words; these are of the language that it is written
  // in.
  const std::string name =
      error.message.starts_with("the chat template fails") ? broken_call(variables) : "";
  if (!name.empty()) {
    error.hint = fmt::format(
        "the arguments of a call of {} are no JSON object, and few templates take others: leave "
        "the call and its result out",
        name);
  }
  if (error.code != ErrorCode::kExhausted) error.code = ErrorCode::kInvalidArgument;
  error.param = "messages";
  return error;
}

// Fit to be found again: long enough, and the same when it is written as JSON.
bool is_proof(std::string_view text) {
  return text.size() >= kMinProofBytes && std::none_of(text.begin(), text.end(), [](char c) {
           return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
         });
}

// Texts inside the value.
void collect_texts(const boost::json::value& value, std::vector<std::string_view>& texts) {
  if (texts.size() == kMaxProofs) return;
  if (value.is_string() && is_proof(text_view(value.get_string()))) {
    texts.push_back(text_view(value.get_string()));
  } else if (value.is_array()) {
    for (const boost::json::value& each : value.get_array()) collect_texts(each, texts);
  } else if (value.is_object()) {
    for (const auto& [key, each] : value.get_object()) collect_texts(each, texts);
  }
}

// A text of the value that stands in the prompt, and that only the value can have brought there.
bool shows_in(std::string_view rendered, const boost::json::value& value,
              std::string_view elsewhere) {
  std::vector<std::string_view> texts;
  collect_texts(value, texts);
  for (const std::string_view text : texts) {
    if (rendered.find(text) != std::string_view::npos &&
        elsewhere.find(text) == std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// Content that comes beside the messages must reach the prompt: the template reads it, or the
// request is refused. A template may mention a name and still leave it out, so its output decides:
// at once where a text of the content shows there, else by rendering again without it.
Status check_reaches_prompt(const ChatTemplate& chat_template, boost::json::object& variables,
                            std::string_view name, const std::string& rendered) {
  const auto found = variables.find(name);
  if (found == variables.end()) return {};
  boost::json::value taken = std::move(found->value());
  variables.erase(found);
  const std::string elsewhere =
      to_text(boost::json::value(variables)) + std::string(chat_template.source());
  bool reached = shows_in(rendered, taken, elsewhere);
  if (!reached) {
    const auto without = render(chat_template, variables);
    reached = !without.ok() || *without != rendered;
  }
  variables[name] = std::move(taken);
  return reached ? Status() : no_place(name);
}

std::vector<int32_t> join_ids(std::vector<int32_t> earlier, std::vector<int32_t>& later,
                              const Tokenizer& tokenizer) {
  if (earlier.empty()) return std::move(later);
  const auto bos = tokenizer.bos_id();
  const bool has_bos = bos && !later.empty() && later.front() == *bos;
  earlier.insert(earlier.end(), later.begin() + (has_bos ? 1 : 0), later.end());
  return earlier;
}

}  // namespace

boost::json::object template_message(const ChatMessage& message) {
  boost::json::object converted{{"role", message.role}, {"content", message.text}};
  const auto add = [&converted](std::string_view name, const std::string& text) {
    if (!text.empty()) converted[name] = text;
  };
  add("reasoning_content", message.reasoning);
  add("tool_call_id", message.call_id);
  add("name", message.name);
  if (message.calls.empty()) return converted;
  boost::json::array calls;
  for (const ChatCall& call : message.calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  converted["tool_calls"] = std::move(calls);
  return converted;
}

ChatPrompt make_chat_prompt(const std::vector<ChatMessage>& messages) {
  ChatPrompt conversation;
  boost::json::array converted;
  converted.reserve(messages.size());
  for (const ChatMessage& message : messages) converted.push_back(template_message(message));
  conversation.variables["messages"] = std::move(converted);
  conversation.variables["add_generation_prompt"] = true;
  return conversation;
}

bool has_tools(const boost::json::object& variables) {
  const boost::json::value* tools = variables.if_contains("tools");
  return tools != nullptr && tools->is_array() && !tools->get_array().empty();
}

Result<std::string_view> chat_template_source(const ServingModel& model, bool with_tools) {
  const ChatTemplate* chat_template = model.text.template_for(with_tools);
  if (chat_template != nullptr) return std::string_view(chat_template->source());
  return Error{ErrorCode::kUnsupported, "this model has no chat template",
               "use /v1/completions, or a chat-tuned model", "messages"};
}

Result<std::vector<int32_t>> encode_conversation(ChatPrompt conversation, const ServingModel& model,
                                                 const EncodeLimits& limits) {
  boost::json::object& variables = conversation.variables;
  const bool with_tools = has_tools(variables);
  const std::string_view source = TRY(chat_template_source(model, with_tools));
  const ToolFormat* format = model.text.formats.tools;
  TRY(fit_messages(variables, source, format != nullptr && format->one_text));
  fit_call_ids(variables["messages"].get_array(),
               call_ids_of(source, format != nullptr && format->counts_calls));
  const ChatTemplate& chat_template = *model.text.template_for(with_tools);
  place_later_system(chat_template, variables);
  const std::string rendered = TRY(render(chat_template, variables));
  for (const std::string& name : conversation.required) {
    TRY(check_reaches_prompt(chat_template, variables, name, rendered));
  }
  auto ids = model.text.encode_chat(rendered, limits);
  if (ids.ok()) return join_ids(std::move(conversation.earlier), *ids, *model.text.tokenizer);
  Error error = ids.error();
  if (error.param.empty()) error.param = "messages";
  return error;
}

}  // namespace headrace
