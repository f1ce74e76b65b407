// openai: the OpenAI dialect: bodies of /v1/chat/completions and /v1/completions to requests, and
// answers to JSON and to server-sent events.
//
// Every refusal is an Error with `param`; which fields there are is the table of api_fields.h.
// Source: the published OpenAI API, and vLLM's extensions to it that its clients send.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_fields.h"
#include "server/api/dialect.h"
#include "server/api/fields.h"
#include "server/api/pooled.h"

namespace headrace {

extern const Dialect kOpenAi;
std::string openai_error_body(const Problem& problem);

Result<ParsedRequest> parse_completion(const boost::json::object& body, const ServingModel& model);
Result<ParsedRequest> parse_chat(const boost::json::object& body, const ServingModel& model);

// What renderers of both kinds are told of the request.
struct OpenAiAnswer {
  std::string model_name;         // as the client calls the model
  std::optional<int> num_top;     // alternatives of each log-prob; nothing: no log-probs
  bool include_usage = false;     // a last chunk with usage
  bool continuous_usage = false;  // usage in every chunk
  size_t num_choices = 1;         // of a chat
};
std::unique_ptr<AnswerRenderer> make_chat_renderer(const ServingModel& model, OpenAiAnswer answer);
std::unique_ptr<AnswerRenderer> make_completion_renderer(const ServingModel& model,
                                                         OpenAiAnswer answer);

Result<ParsedPooled> parse_embedding(const boost::json::object& body, const ServingModel& model);
Result<ParsedPooled> parse_rerank(const boost::json::object& body, const ServingModel& model);
Result<ParsedPooled> parse_score(const boost::json::object& body, const ServingModel& model);
// "truncate_prompt_tokens": -1 means the context.
Status parse_truncation(const Fields& fields, const ServingModel& model, PromptSource& source);

// "messages" (with tools and template variables) of a body. Also the chat form of /tokenize.
// What the body says of calls and reasoning goes to `form`.
Result<ChatPrompt> parse_conversation(const boost::json::object& body, const ServingModel& model,
                                      AnswerForm& form, IgnoredFields& ignored);
// The fields beside "messages" where there are none, as in the text form of /tokenize: an error
// names the one that could not be read.
Status check_conversation_fields(const boost::json::object& body);
// The four forms of "prompt"; n: answers to each.
Result<PromptSource> parse_prompts(const Fields& fields, const ServingModel& model, int n);

}  // namespace headrace
