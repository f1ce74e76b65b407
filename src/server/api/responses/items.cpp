// Items of a conversation to messages.

#include <algorithm>
#include <map>

#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/responses/responses.h"

namespace headrace {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr size_t kMaxItems = 10'000;
// Made by tools that this server does not have: what they found stands in the answers beside them.
constexpr std::string_view kLeftOut[] = {
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "local_shell_call",
    "local_shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "compaction",
    "additional_tools",
};

std::string text_of(const std::optional<std::string_view>& text) {
  return std::string(text.value_or(""));
}

// Reads the items of one conversation in order.
class ItemReader {
 public:
  explicit ItemReader(IgnoredFields& ignored) : ignored_(ignored) {}

  Status read(const value& item, size_t item_idx);
  std::vector<ChatMessage> take() { return std::move(messages_); }

 private:
  Status read_message(const Fields& fields);
  Status read_call(const Fields& fields, std::string_view arguments_field);
  Status read_output(const Fields& fields);
  Status read_reasoning(const Fields& fields);
  Result<std::string> content_of(const Fields& fields, std::string_view name);
  Result<std::string> join_parts(const array& parts, const std::string& path);
  // The assistant's message that its next reasoning, text or call is part of.
  ChatMessage& assistant_turn();

  IgnoredFields& ignored_;
  std::vector<ChatMessage> messages_;
  std::map<std::string, std::string> names_;  // of the functions called, by the call's id
};

ChatMessage& ItemReader::assistant_turn() {
  if (messages_.empty() || messages_.back().role != "assistant") {
    messages_.push_back({"assistant", ""});
  }
  return messages_.back();
}

Result<std::string> ItemReader::join_parts(const array& parts, const std::string& path) {
  constexpr std::string_view kTexts[] = {"input_text", "output_text", "text", "summary_text",
                                         "reasoning_text"};
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    const object* part = parts[i].if_object();
    if (part == nullptr) return bad_field(part_path, show_value(parts[i]), "an object");
    const Fields fields(*part, part_path + ".");
    const auto type = TRY(fields.text("type"));
    const bool refusal = type == "refusal";
    if (!refusal &&
        std::find(std::begin(kTexts), std::end(kTexts), type.value_or("")) == std::end(kTexts)) {
      return bad_field(fields.path("type"),
                       type ? show_value(boost::json::string(*type)) : "missing",
                       "\"input_text\" or \"output_text\": this model reads text only");
    }
    TRY(check_fields(*part, kInResponsePart, path + "[].", ignored_));
    const auto text = TRY(fields.text(refusal ? "refusal" : "text"));
    if (!text) return bad_field(fields.path(refusal ? "refusal" : "text"), "missing", "a string");
    if (i > 0) joined += '\n';
    joined += *text;
  }
  return joined;
}

// A text or a list of parts.
Result<std::string> ItemReader::content_of(const Fields& fields, std::string_view name) {
  const value* content = fields.find(name);
  if (content == nullptr) return std::string();
  if (content->is_string()) return std::string(text_view(content->get_string()));
  if (content->is_array()) return join_parts(content->get_array(), fields.path(name));
  return bad_field(fields.path(name), show_value(*content), "a string or a list of text parts");
}

Status ItemReader::read_message(const Fields& fields) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};
  const auto role = TRY(fields.text("role"));
  if (std::find(std::begin(kRoles), std::end(kRoles), role.value_or("")) == std::end(kRoles)) {
    return bad_field(fields.path("role"), role ? show_value(boost::json::string(*role)) : "missing",
                     "system, developer, user or assistant");
  }
  const std::string text = TRY(content_of(fields, "content"));
  if (role != "assistant") {
    messages_.push_back({std::string(*role), text});
    return {};
  }
  ChatMessage& turn = assistant_turn();
  if (!turn.calls.empty() || !turn.text.empty()) {  // a turn of its own
    messages_.push_back({"assistant", text});
  } else {
    turn.text = text;
  }
  return {};
}

// Custom tools take a text; templates know functions, whose arguments are an object.
Status ItemReader::read_call(const Fields& fields, std::string_view arguments_field) {
  const auto name = TRY(fields.text("name"));
  if (!name || name->empty()) return bad_field(fields.path("name"), "missing", "a string");
  const auto call_id = TRY(fields.text("call_id"));
  std::string arguments = text_of(TRY(fields.text(arguments_field)));
  if (arguments_field == "input") arguments = to_text(object{{"input", arguments}});
  const std::string called = called_name(TRY(fields.text("namespace")).value_or(""), *name);
  if (call_id) names_[std::string(*call_id)] = called;
  assistant_turn().calls.push_back({text_of(call_id), called, std::move(arguments)});
  return {};
}

Status ItemReader::read_output(const Fields& fields) {
  const std::string call_id = text_of(TRY(fields.text("call_id")));
  if (fields.find("output") == nullptr) {
    return bad_field(fields.path("output"), "missing", "a string or a list of text parts");
  }
  ChatMessage message{"tool", TRY(content_of(fields, "output"))};
  message.call_id = call_id;
  const auto name = names_.find(call_id);
  if (name != names_.end()) message.name = name->second;
  messages_.push_back(std::move(message));
  return {};
}

// The text itself; where a client kept only our copy of it, the copy; else its summary.
Status ItemReader::read_reasoning(const Fields& fields) {
  std::string text = TRY(content_of(fields, "content"));
  const auto copy = TRY(fields.text("encrypted_content"));
  if (text.empty() && copy && copy->starts_with(kPlainReasoning)) {
    text = copy->substr(kPlainReasoning.size());
  }
  if (text.empty()) text = TRY(content_of(fields, "summary"));
  if (text.empty()) return {};
  const bool begins = messages_.empty() || messages_.back().role != "assistant" ||
                      !messages_.back().text.empty() || !messages_.back().calls.empty();
  if (begins) messages_.push_back({"assistant", ""});
  std::string& reasoning = messages_.back().reasoning;
  reasoning += (reasoning.empty() ? "" : "\n") + text;
  return {};
}

Status ItemReader::read(const value& item, size_t item_idx) {
  const std::string path = fmt::format("input[{}]", item_idx);
  const object* members = item.if_object();
  if (members == nullptr) return bad_field(path, show_value(item), "an object");
  const Fields fields(*members, path + ".");
  const std::string type = std::string(TRY(fields.text("type")).value_or("message"));
  if (std::find(std::begin(kLeftOut), std::end(kLeftOut), type) != std::end(kLeftOut)) {
    ignored_.add(fmt::format("input[].{}", type));
    return {};
  }
  TRY(check_fields(*members, kInResponseItem, "input[].", ignored_));
  if (type == "message") return read_message(fields);
  if (type == "function_call") return read_call(fields, "arguments");
  if (type == "custom_tool_call") return read_call(fields, "input");
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    return read_output(fields);
  }
  if (type == "reasoning") return read_reasoning(fields);
  Error error = bad_field(fields.path("type"), show_value(boost::json::string(type)),
                          "message, reasoning, function_call, function_call_output, "
                          "custom_tool_call or custom_tool_call_output");
  error.code = ErrorCode::kUnsupported;
  return error;
}

// Most templates take one system message, at the beginning.
void join_system(std::string_view instructions, std::vector<ChatMessage>& messages) {
  const auto end = std::find_if(messages.begin(), messages.end(), [](const ChatMessage& each) {
    return each.role != "system" && each.role != "developer";
  });
  if (instructions.empty() && end - messages.begin() < 2) return;
  ChatMessage joined{"system", std::string(instructions)};
  for (auto message = messages.begin(); message != end; ++message) {
    joined.text += (joined.text.empty() ? "" : "\n\n") + message->text;
  }
  messages.erase(messages.begin(), end);
  messages.insert(messages.begin(), std::move(joined));
}

Error no_response(std::string_view param, std::string_view id) {
  Error error =
      bad_field(param, show_value(boost::json::string(id)), "the id of a response that is kept");
  error.hint = "responses are kept for a while if store is not false; send the whole conversation";
  return error;
}

Result<array> parse_list(const std::string& text) {
  const value parsed = TRY(parse_json(text, "a stored response"));
  return parsed.as_array();
}

// Items of earlier answers by their ids: each answer is read once, and what a body of a few bytes
// can call up has a bound.
class KeptItems {
 public:
  explicit KeptItems(const ResponsesCaller& caller) : caller_(caller) {}

  Result<value> find(std::string_view id, const std::string& path) {
    const array* const outputs = TRY(outputs_of(response_of_item(id)));
    for (const value& each : *outputs) {
      if (text_view(each.at("id").as_string()) != id) continue;
      num_bytes_ += to_text(each).size();
      if (num_bytes_ <= kMaxReferenced) return each;
      return bad_field(path, "a reference to more than can be called up",
                       fmt::format("among items of at most {} MiB", kMaxReferenced >> 20));
    }
    Error error =
        bad_field(path, show_value(boost::json::string(id)), "the id of an item that is kept");
    error.hint = "send the item itself";
    return error;
  }

 private:
  static constexpr size_t kMaxReferenced = size_t{32} << 20;

  // Empty: there is no such response. Lives as long as this.
  Result<const array*> outputs_of(const std::string& response_id) {
    const auto known = outputs_.find(response_id);
    if (known != outputs_.end()) return &known->second;
    const auto kept = caller_.store->find(response_id, caller_.owner);
    array outputs;
    if (kept != nullptr) outputs = TRY(parse_list(kept->outputs));
    return &outputs_.emplace(response_id, std::move(outputs)).first->second;
  }

  const ResponsesCaller& caller_;
  std::map<std::string, array> outputs_;  // by the response's id
  size_t num_bytes_ = 0;                  // of the items found
};

Result<value> own_item(const value& item, size_t item_idx, const std::string& id, KeptItems& kept) {
  const object* members = item.if_object();
  if (members == nullptr) {
    return bad_field(fmt::format("input[{}]", item_idx), show_value(item), "an object");
  }
  const Fields fields(*members, fmt::format("input[{}].", item_idx));
  const auto type = TRY(fields.text("type"));
  if (type == "item_reference") {
    return kept.find(text_of(TRY(fields.text("id"))), fields.path("id"));
  }
  object whole = *members;
  if (!type) whole["type"] = "message";
  if (!whole.contains("id") || whole["id"].is_null()) whole["id"] = id;
  return value(std::move(whole));
}

Result<array> earlier_items(const object& body, const ResponsesCaller& caller) {
  const auto previous = TRY(Fields(body).text("previous_response_id"));
  if (!previous) return array();
  const auto kept = caller.store->find(*previous, caller.owner);
  if (kept == nullptr) return no_response("previous_response_id", *previous);
  array items = TRY(parse_list(kept->items));
  const array outputs = TRY(parse_list(kept->outputs));
  items.insert(items.end(), outputs.begin(), outputs.end());
  return items;
}

}  // namespace

Result<array> collect_items(const object& body, const ResponsesCaller& caller) {
  array items = TRY(earlier_items(body, caller));
  const value* input = Fields(body).find("input");
  const std::string id = fresh_response_id();
  if (input != nullptr && input->is_string()) {
    items.push_back({{"type", "message"},
                     {"id", item_id("msg", id, 0)},
                     {"role", "user"},
                     {"content", {{{"type", "input_text"}, {"text", input->get_string()}}}}});
    return items;
  }
  if (input == nullptr || !input->is_array() || input->get_array().empty()) {
    return bad_field("input", input == nullptr ? "missing" : show_value(*input),
                     "a string or a list of at least one item");
  }
  if (items.size() + input->get_array().size() > kMaxItems) {
    return bad_field("input", show_value(*input), fmt::format("at most {} items", kMaxItems));
  }
  KeptItems kept(caller);
  for (size_t i = 0; i < input->get_array().size(); ++i) {
    items.push_back(TRY(own_item(input->get_array()[i], i, item_id("item", id, i), kept)));
  }
  return items;
}

Result<std::vector<ChatMessage>> read_items(const array& items, std::string_view instructions,
                                            IgnoredFields& ignored) {
  ItemReader reader(ignored);
  for (size_t i = 0; i < items.size(); ++i) TRY(reader.read(items[i], i));
  std::vector<ChatMessage> messages = reader.take();
  join_system(instructions, messages);
  if (messages.empty()) return bad_field("input", "without a message", "at least one message");
  return messages;
}

}  // namespace headrace
