// anthropic: the dialect of Anthropic's Messages API: bodies of /v1/messages and
// /v1/messages/count_tokens to requests, and answers to messages of content blocks, whole or as
// named server-sent events.
//
// Every refusal is an Error with `param`; which fields there are is the table of api_fields.h.
// Source: the published Messages API and the types of Anthropic's own client libraries.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <vector>

#include "server/api/api_fields.h"
#include "server/api/conversation.h"
#include "server/api/dialect.h"
#include "server/api/fields.h"

namespace headrace {

extern const Dialect kAnthropic;

// betas: the header "anthropic-beta", what the client asks for beyond the API: what is neither
// served nor without meaning here is named as ignored.
Result<ParsedRequest> parse_message(const boost::json::object& body, const ServingModel& model,
                                    std::string_view betas = {});
// The same body without an answer: how many tokens its prompt has.
Result<ParsedRequest> parse_message_count(const boost::json::object& body,
                                          const ServingModel& model, std::string_view betas = {});

// "system" and "messages" in the words of templates. Blocks of text are joined by newlines;
// neighbours of one role are one message, since the model sees turns. A system message after others
// stays where it is if the template writes it there, else it is the user's. A last message of the
// assistant is the beginning of the answer.
Result<ChatPrompt> parse_anthropic_conversation(const Fields& fields, const ServingModel& model,
                                                IgnoredFields& ignored);
// "tools" and "tool_choice".
Result<ToolUse> parse_anthropic_tools(const Fields& fields, IgnoredFields& ignored);

// What the renderer is told of the request.
struct AnthropicAnswer {
  std::string model_name;      // as the client calls the model
  int32_t max_tokens = 0;      // as it was asked for
  bool shows_thinking = true;  // false: thinking blocks are empty
};
std::unique_ptr<AnswerRenderer> make_message_renderer(AnthropicAnswer answer);

}  // namespace headrace
