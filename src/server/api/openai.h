// openai: the OpenAI dialect: bodies of /v1/chat/completions and /v1/completions to requests, and
// answers to JSON and to server-sent events.
//
// Parsing does all text work (template, tokenising): call it on a worker thread. Every refusal is
// an Error with `param`; which fields there are is the table of api_fields.h. Source: the published
// OpenAI API, and vLLM's extensions to it that its clients send.
#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_budget.h"
#include "engine/request.h"
#include "server/api/api_fields.h"
#include "server/api/bundle.h"
#include "server/api/json.h"
#include "server/api/model_info.h"

namespace headrace {

// What parsing needs to know of the server. The referred-to objects outlive every request.
struct ServingModel {
  const TextBundle& text;
  const ModelInfo& info;
  std::span<const std::string> names;  // by which requests may ask for the model; first: its own
  int64_t max_context = 0;
};

// Who asks.
struct Caller {
  std::string request_id;         // x-request-id
  uint64_t client = 0;            // Request::client
  bool has_key = false;           // then `client` is a domain of the prefix cache too
  TimeUs arrived_us = 0;          // Request::arrived_us
  std::function<bool()> left;     // nobody waits for the answer any more; may be empty
  ByteBudget::Lease memory = {};  // what the request holds; the session's afterwards
};

struct Prompt {
  std::vector<int32_t> ids;
  std::string echo_text;  // what `echo` repeats; empty without it
};

struct GenerationRequest {
  std::vector<Prompt> prompts;  // at least one
  int num_choices = 1;          // per prompt; each draws by its own index
  Request prototype;            // everything but the prompt; max_tokens before clamping
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  bool stream = false;
  bool include_usage = false;     // a last chunk with usage
  bool continuous_usage = false;  // usage in every chunk
  bool echo = false;
  std::string model_name;         // as the client calls the model
  IgnoredFields ignored;          // for x-headrace-ignored
  ByteBudget::Lease memory = {};  // holds the prompts and their scores

  size_t total_choices() const { return prompts.size() * static_cast<size_t>(num_choices); }
  // Nothing is to be computed: the answer is the prompt.
  bool only_echoes() const {
    return prototype.max_tokens == 0 && !prototype.num_prompt_logprobs.has_value();
  }
  // The request of one choice: prompt, index, and max_tokens within the context.
  Request engine_request(size_t choice_idx, int64_t max_context) const;
};

// Beyond bad fields: kExhausted (the caller's budget has no room for the request), kUnavailable
// (the caller left).
Result<GenerationRequest> parse_completion(const boost::json::object& body,
                                           const ServingModel& model, Caller caller = {});
Result<GenerationRequest> parse_chat(const boost::json::object& body, const ServingModel& model,
                                     Caller caller = {});
// Renders "messages" (with tools and template variables) of a chat body to prompt ids. Also the
// chat form of /tokenize.
Result<std::vector<int32_t>> chat_prompt_ids(const boost::json::object& body,
                                             const ServingModel& model, const EncodeLimits& limits,
                                             IgnoredFields& ignored);

// The name by which the body asks for the model. kNotFound if it is not served here.
Result<std::string> asked_model(const boost::json::object& body, const ServingModel& model);

// Bytes of one token's log-probs with this many alternatives, as they are written: an estimate
// from above for tokens of up to 8 bytes.
size_t score_bytes(int num_alternatives);

struct ScoredToken {
  int32_t id = -1;
  std::optional<TokenLogprobs> logprobs;  // nothing: the first token of a prompt
  int64_t text_offset = 0;                // characters before it in the choice's text
};

// Log-probs of consecutive tokens as the dialect writes them: the contents of its lists. Written
// token by token as they come, so that no answer has to be written in one go.
struct ScoreText {
  std::array<JsonWriter, 4> lists;
  size_t num_tokens = 0;

  size_t bytes() const;
};

// A part of one choice's answer: one chunk of a stream, or the whole choice.
struct ChoiceDelta {
  size_t choice_idx = 0;
  bool first = false;  // of its choice
  std::string text;
  ScoreText scores;  // of the tokens in text, if log-probs were asked for
  FinishReason finish = FinishReason::kNone;
};

// Makes the bytes of one response. One per response; one thread at a time.
class ResponseRenderer {
 public:
  virtual ~ResponseRenderer() = default;
  virtual const std::string& id() const = 0;  // "chatcmpl-..."
  virtual void add_score(const ScoredToken& token, ScoreText& scores) = 0;
  // One event; usage is null unless it is wanted in every chunk.
  virtual std::string chunk(const ChoiceDelta& delta, const Usage* usage) = 0;
  virtual std::string usage_chunk(const Usage& usage) = 0;
  // The whole answer: begin, each choice, end.
  virtual void begin_whole(JsonWriter& json) = 0;
  virtual void add_choice(const ChoiceDelta& choice, JsonWriter& json) = 0;
  virtual void end_whole(const Usage& usage, JsonWriter& json) = 0;
  virtual std::string error_event(const Error& error) = 0;
  virtual std::string end_event() = 0;
};

std::unique_ptr<ResponseRenderer> make_chat_renderer(const ServingModel& model,
                                                     const GenerationRequest& request);
std::unique_ptr<ResponseRenderer> make_completion_renderer(const ServingModel& model,
                                                           const GenerationRequest& request);

}  // namespace headrace
