// openai: the OpenAI dialect: bodies of /v1/chat/completions and /v1/completions to requests, and
// answers to JSON and to server-sent events.
//
// Parsing does all text work (template, tokenising): call it on a worker thread. Every refusal is
// an Error with `param`; fields that are not known are ignored, because clients send many. Source:
// the published OpenAI API, and vLLM's extensions to it that its clients send.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/bundle.h"
#include "server/server.h"

namespace headrace {

// What parsing needs to know of the server. The referred-to objects outlive every request.
struct ServingModel {
  const TextBundle& text;
  const ModelInfo& info;
  std::span<const std::string> names;  // by which requests may ask for the model; first: its own
  int64_t max_context = 0;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::string echo_text;  // what `echo` repeats; empty without it
};

struct GenerationRequest {
  std::vector<Prompt> prompts;  // at least one
  int num_choices = 1;          // per prompt; choice i samples with seed + i
  Request prototype;            // everything but the prompt; max_tokens before clamping
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  bool stream = false;
  bool include_usage = false;     // a last chunk with usage
  bool continuous_usage = false;  // usage in every chunk
  bool echo = false;
  std::string request_id;  // x-request-id

  size_t total_choices() const { return prompts.size() * static_cast<size_t>(num_choices); }
  // The request of one choice: prompt, seed, and max_tokens within the context.
  Request engine_request(size_t choice_idx, int64_t max_context) const;
};

Result<GenerationRequest> parse_completion(const boost::json::object& body,
                                           const ServingModel& model);
Result<GenerationRequest> parse_chat(const boost::json::object& body, const ServingModel& model);
// Renders "messages" (with tools and template variables) of a chat body to prompt ids. Also the
// chat form of /tokenize.
Result<std::vector<int32_t>> chat_prompt_ids(const boost::json::object& body,
                                             const ServingModel& model);

// Sampling, lengths, stops and streaming: what both kinds of body share. Fills all but prompts.
Status parse_common(const boost::json::object& body, const ServingModel& model,
                    GenerationRequest& request);
// kNotFound if the body asks for a model that is not served here.
Status check_model_name(const boost::json::object& body, const ServingModel& model);
// kInvalidArgument if the prompt leaves no room in the context, or holds an unknown id.
Status check_prompt(std::span<const int32_t> ids, std::string_view param, bool needs_room,
                    const ServingModel& model);

struct ScoredToken {
  int32_t id = -1;
  std::optional<TokenLogprobs> logprobs;  // nothing: the first token of a prompt
  int64_t text_offset = 0;                // characters before it in the choice's text
};

// A part of one choice's answer: one chunk of a stream, or the whole choice.
struct ChoiceDelta {
  size_t choice_idx = 0;
  bool first = false;  // of its choice
  std::string text;
  std::vector<ScoredToken> scores;  // of the tokens in text, if log-probs were asked for
  FinishReason finish = FinishReason::kNone;
};

// Makes the bytes of one response. One per response; one thread at a time.
class ResponseRenderer {
 public:
  virtual ~ResponseRenderer() = default;
  // One event; usage is null unless it is wanted in every chunk.
  virtual std::string chunk(const ChoiceDelta& delta, const Usage* usage) = 0;
  virtual std::string usage_chunk(const Usage& usage) = 0;
  virtual std::string whole(std::span<const ChoiceDelta> choices, const Usage& usage) = 0;
  virtual std::string error_event(const Error& error) = 0;
  virtual std::string end_event() = 0;
};

std::unique_ptr<ResponseRenderer> make_chat_renderer(const ServingModel& model,
                                                     const GenerationRequest& request);
std::unique_ptr<ResponseRenderer> make_completion_renderer(const ServingModel& model,
                                                           const GenerationRequest& request);

}  // namespace headrace
