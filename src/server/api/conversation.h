// Conversations to token ids, by the model's chat template.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/api/serving_model.h"
#include "text/tokenizer.h"

namespace headrace {

// Messages and what stands beside them, as chat templates read them: the variables of the template,
// with "messages" (role, content, tool_calls ...), "tools", "documents", "add_generation_prompt".
struct ChatPrompt {
  boost::json::object variables;
  std::vector<std::string> required;  // of these, what must reach the prompt: "tools", "documents"
  // Ids that stand before it, of an earlier answer: the template's begin token is left out then.
  std::vector<int32_t> earlier = {};
};

// A message as any dialect has it.
struct ChatCall {
  std::string id, name;
  std::string arguments;  // JSON text
};
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string text;
  std::string reasoning = {};           // assistant: what it thought before; empty: nothing
  std::vector<ChatCall> calls = {};     // assistant
  std::string call_id = {}, name = {};  // tool: the call that this answers, and of which function
};

// In the variables of templates: role, content, reasoning_content, tool_calls, tool_call_id, name.
boost::json::object template_message(const ChatMessage& message);
// Messages, and the model's turn after them.
ChatPrompt make_chat_prompt(const std::vector<ChatMessage>& messages);

// Whether the variables of a template offer tools.
bool has_tools(const boost::json::object& variables);

// The source text of the model's chat template, for conversations with tools or without;
// kUnsupported if it has none.
Result<std::string_view> chat_template_source(const ServingModel& model, bool with_tools = false);

// What the template has no name for is said in one that it has: the role "developer" is "system",
// arguments of calls are objects. kUnsupported: it has no place for the calls, or for a required
// one: what the model would never see is refused, not dropped. Other errors: kInvalidArgument with
// the template's reason, and those of Tokenizer::encode.
Result<std::vector<int32_t>> encode_conversation(ChatPrompt conversation, const ServingModel& model,
                                                 const EncodeLimits& limits);

}  // namespace headrace
