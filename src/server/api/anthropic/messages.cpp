// Messages of content blocks, in the words of chat templates.

#include <boost/json/array.hpp>
#include <map>

#include "server/api/anthropic/anthropic.h"
#include "server/api/json.h"

namespace headrace {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

// Clients put who is billed into a system block; it changes with each request and is no one's
// prompt.
constexpr std::string_view kBillingMark = "x-anthropic-billing-header:";
constexpr std::string_view kRoleNames = "\"user\", \"assistant\" or \"system\"";

void add_line(std::string& text, std::string_view line) {
  if (!text.empty()) text += '\n';
  text += line;
}

Result<std::string_view> needed_text(const object& block, std::string_view name,
                                     const std::string& path) {
  const auto text = TRY(Fields(block, path + ".").text(name));
  if (!text) return bad_field(path + "." + std::string(name), "missing", "a string");
  return *text;
}

Error bad_block(const std::string& path, std::string_view type, std::string_view needed) {
  Error error = bad_field(path + ".type", show_value(boost::json::string(type)), needed);
  error.code = ErrorCode::kUnsupported;
  return error;
}

// A block of a list: an object with a type.
struct Block {
  const object& members;
  std::string_view type;
  std::string path;  // "messages[0].content[1]"
};

class BlockReader {
 public:
  explicit BlockReader(IgnoredFields& ignored) : ignored_(ignored) {}

  Result<Block> block(const value& item, std::string path) {
    if (!item.is_object()) return bad_field(path, show_value(item), "a content block");
    const object& members = item.get_object();
    TRY(check_fields(members, kInBlock, path + ".", ignored_));
    const std::string_view type = TRY(needed_text(members, "type", path));
    return Block{members, type, std::move(path)};
  }

  // A string, or text blocks and documents, as one text.
  Result<std::string> text(const value& content, const std::string& path) {
    if (content.is_string()) return std::string(text_view(content.get_string()));
    if (!content.is_array()) {
      return bad_field(path, show_value(content), "a string or a list of content blocks");
    }
    std::string joined;
    const array& blocks = content.get_array();
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block each = TRY(block(blocks[i], fmt::format("{}[{}]", path, i)));
      add_line(joined, TRY(text_of(each)));
    }
    return joined;
  }

  // Of a block that is text.
  Result<std::string> text_of(const Block& block) {
    if (block.type == "text") {
      return std::string(TRY(needed_text(block.members, "text", block.path)));
    }
    if (block.type == "document") return document(block);
    if (block.type == "search_result") return search_result(block);
    return bad_block(block.path, block.type,
                     "a block of text: this model reads text, and calls tools of the client only");
  }

 private:
  // Title and context stand before the text.
  Result<std::string> document(const Block& block) {
    const Fields fields(block.members, block.path + ".");
    std::string text;
    for (const char* name : {"title", "context"}) {
      const auto line = TRY(fields.text(name));
      if (line) add_line(text, *line);
    }
    const object* source = TRY(fields.object("source"));
    const std::string path = block.path + ".source";
    if (source == nullptr) return bad_field(path, "missing", "an object");
    const std::string_view type = TRY(needed_text(*source, "type", path));
    if (type == "text") {
      add_line(text, TRY(needed_text(*source, "data", path)));
    } else if (type == "content" && source->contains("content")) {
      add_line(text, TRY(this->text(source->at("content"), path + ".content")));
    } else {
      return bad_block(path, type, "\"text\" or \"content\": this model reads text");
    }
    return text;
  }

  Result<std::string> search_result(const Block& block) {
    std::string text(TRY(needed_text(block.members, "title", block.path)));
    add_line(text, TRY(needed_text(block.members, "source", block.path)));
    const value* content = block.members.if_contains("content");
    if (content == nullptr) {
      return bad_field(block.path + ".content", "missing", "a list of text blocks");
    }
    add_line(text, TRY(this->text(*content, block.path + ".content")));
    return text;
  }

  IgnoredFields& ignored_;
};

// Reads "system" and "messages" into messages of templates.
class ConversationReader {
 public:
  explicit ConversationReader(IgnoredFields& ignored) : blocks_(ignored), ignored_(ignored) {}

  Status read_system(const value& system) {
    std::string text;
    if (system.is_array()) {
      const array& list = system.get_array();
      for (size_t i = 0; i < list.size(); ++i) {
        const Block block = TRY(blocks_.block(list[i], fmt::format("system[{}]", i)));
        const std::string line = TRY(blocks_.text_of(block));
        if (!line.starts_with(kBillingMark)) add_line(text, line);
      }
    } else {
      text = TRY(blocks_.text(system, "system"));
      if (text.starts_with(kBillingMark)) text.clear();
    }
    if (!text.empty()) add({"system", std::move(text)});
    return {};
  }

  Status read_message(const value& item, const std::string& path) {
    if (!item.is_object()) return bad_field(path, show_value(item), "an object");
    const object& message = item.get_object();
    TRY(check_fields(message, kInBlockMessage, path + ".", ignored_));
    const std::string_view role = TRY(needed_text(message, "role", path));
    const value* content = message.if_contains("content");
    if (content == nullptr) {
      return bad_field(path + ".content", "missing", "a string or a list of content blocks");
    }
    if (role == "assistant") return read_assistant(*content, path + ".content");
    if (role == "user") return read_user(*content, path + ".content");
    if (role != "system") {
      return bad_field(path + ".role", show_value(message.at("role")), kRoleNames);
    }
    add({"system", TRY(blocks_.text(*content, path + ".content"))});
    return {};
  }

  std::vector<ChatMessage> take() { return std::move(messages_); }

 private:
  // The results of calls stand where they came, in messages of their own.
  Status read_user(const value& content, const std::string& path) {
    if (!content.is_array()) {
      add({"user", TRY(blocks_.text(content, path))});
      return {};
    }
    const array& list = content.get_array();
    for (size_t i = 0; i < list.size(); ++i) {
      const Block block = TRY(blocks_.block(list[i], fmt::format("{}[{}]", path, i)));
      if (block.type == "tool_result") {
        TRY(read_result(block));
      } else {
        add({"user", TRY(blocks_.text_of(block))});
      }
    }
    return {};
  }

  Status read_result(const Block& block) {
    ChatMessage result{"tool", {}};
    result.call_id = TRY(needed_text(block.members, "tool_use_id", block.path));
    // Templates name the function of a result; here only its call does.
    const auto called = names_.find(result.call_id);
    if (called != names_.end()) result.name = called->second;
    const Fields fields(block.members, block.path + ".");
    if (TRY(fields.boolean("is_error")).value_or(false)) result.text = "Error:";
    const value* content = fields.find("content");
    if (content != nullptr)
      add_line(result.text, TRY(blocks_.text(*content, fields.path("content"))));
    messages_.push_back(std::move(result));
    return {};
  }

  Status read_assistant(const value& content, const std::string& path) {
    ChatMessage message{"assistant", {}};
    if (!content.is_array()) {
      message.text = TRY(blocks_.text(content, path));
      add(std::move(message));
      return {};
    }
    const array& list = content.get_array();
    for (size_t i = 0; i < list.size(); ++i) {
      const Block block = TRY(blocks_.block(list[i], fmt::format("{}[{}]", path, i)));
      TRY(add_block(block, message));
    }
    add(std::move(message));
    return {};
  }

  // What a model thought without showing it (redacted_thinking) means nothing to this one.
  Status add_block(const Block& block, ChatMessage& message) {
    if (block.type == "thinking") {
      add_line(message.reasoning, TRY(needed_text(block.members, "thinking", block.path)));
    } else if (block.type == "tool_use") {
      ChatCall call;
      call.id = TRY(needed_text(block.members, "id", block.path));
      call.name = TRY(needed_text(block.members, "name", block.path));
      const object* input = TRY(Fields(block.members, block.path + ".").object("input"));
      call.arguments = input == nullptr ? "{}" : to_text(value(*input));
      names_[call.id] = call.name;
      message.calls.push_back(std::move(call));
    } else if (block.type != "redacted_thinking") {
      add_line(message.text, TRY(blocks_.text_of(block)));
    }
    return {};
  }

  void add(ChatMessage message) {
    if (messages_.empty() || messages_.back().role != message.role) {
      messages_.push_back(std::move(message));
      return;
    }
    ChatMessage& last = messages_.back();
    if (!message.text.empty()) add_line(last.text, message.text);
    if (!message.reasoning.empty()) add_line(last.reasoning, message.reasoning);
    for (ChatCall& call : message.calls) last.calls.push_back(std::move(call));
  }

  BlockReader blocks_;
  IgnoredFields& ignored_;
  std::vector<ChatMessage> messages_;
  std::map<std::string, std::string> names_;  // of the functions called, by the call's id
};

}  // namespace

Result<ChatPrompt> parse_anthropic_conversation(const Fields& fields, const ServingModel& model,
                                                IgnoredFields& ignored) {
  TRY(chat_template_source(model));
  ConversationReader reader(ignored);
  if (const value* system = fields.find("system")) TRY(reader.read_system(*system));
  const array* list = TRY(fields.array("messages"));
  if (list == nullptr || list->empty()) {
    return bad_field("messages", list == nullptr ? "missing" : "empty",
                     "a list of at least one message");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    TRY(reader.read_message((*list)[i], fmt::format("messages[{}]", i)));
  }
  const std::vector<ChatMessage> messages = reader.take();
  if (messages.empty()) {
    return bad_field("messages[0].content", "an empty list", "a string or a list of blocks");
  }
  const bool goes_on = messages.back().role == "assistant" && messages.back().calls.empty();
  ChatPrompt conversation = make_chat_prompt(messages);
  if (goes_on) {
    conversation.variables["add_generation_prompt"] = false;
    conversation.variables["continue_final_message"] = true;
  }
  return conversation;
}

}  // namespace headrace
