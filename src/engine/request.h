// Request and Event: what a caller asks of the engine and what comes back. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

class Constraint;  // engine/constraint.h
struct Adapter;    // model/adapter.h

using RequestId = uint64_t;

// Order of operations on logits: logit_bias, penalties, (greedy: argmax), temperature, top_k,
// top_p, min_p, draw. What a constraint forbids is left out after penalties. Log-probs are reported
// from the unmodified logits.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy, ties to the lowest id
  int32_t top_k = 0;                // 0 or -1: off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1], relative to the most likely token
  float repetition_penalty = 1.0f;  // > 0, over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2], over output
  float frequency_penalty = 0.0f;   // [-2, 2], over output
  uint64_t seed = 0;                // with choice and position, the whole state of the RNG
  uint32_t choice_idx = 0;          // which of the answers to one request this is
  std::vector<std::pair<int32_t, float>> logit_bias;  // added before anything else
};

// Which states after the final norm become the one vector of a prompt: their mean, or one of them.
enum class Pooling : uint8_t { kNone, kMean, kFirst, kLast };

struct Request {
  std::vector<int32_t> prompt_ids;  // not empty; ids < vocab_size
  SamplingParams sampling;
  int32_t max_tokens = 16;          // output tokens; 0 only to score a prompt (prompt_logprobs) or
                                    // to pool it
  int32_t min_tokens = 0;           // stop ids are not sampled before this many
  std::vector<int32_t> stop_ids;    // end the sequence; the id is reported, not part of the text
  bool ignore_eos = false;          // the model's own end ids do not stop
  std::optional<int> num_logprobs;  // 0..20 alternatives beside each output token
  std::optional<int> num_prompt_logprobs;  // the same for each prompt token but the first
  std::vector<int32_t> label_ids;          // tokens whose log-probs come beside the first token
  Pooling pooling = Pooling::kNone;        // else a vector of the prompt is all that is wanted
  std::string client_id;                   // x-request-id, for logs
  uint64_t client = 0;       // who asks: waiting requests of different clients take turns
  std::string cache_domain;  // prefixes are shared only between requests of one domain
  TimeUs arrived_us = 0;     // when the first byte came in, for the metrics; 0: at submission
  // Which tokens may be sampled; null: all. Of this request alone.
  std::shared_ptr<Constraint> constraint;
  // Made by the model that the engine runs; null: the model alone.
  std::shared_ptr<const Adapter> adapter;
};

struct TokenLogprobs {
  float logprob = 0;                           // of the token itself
  int32_t rank = 0;                            // 1 = the most likely
  std::vector<std::pair<int32_t, float>> top;  // most likely first; ties to the lower id
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t reasoning_tokens = 0;  // of the output; known to whoever takes the text apart
};

struct RequestTimes {  // base/clock.h microseconds
  TimeUs submitted = 0, started = 0, first_token = 0, finished = 0;
};

// Events of one request arrive in order: kPromptLogprobs* kToken* kFinished. Exactly one kFinished.
struct Event {
  enum class Kind : uint8_t { kPromptLogprobs, kToken, kFinished };
  Kind kind = Kind::kToken;
  RequestId request_id = 0;
  int32_t token_id = -1;                  // kToken
  std::optional<TokenLogprobs> logprobs;  // kToken, if asked for
  std::vector<float> label_logprobs;      // first kToken, if asked for: one of each label
  std::vector<std::optional<TokenLogprobs>>
      prompt_logprobs;                        // kPromptLogprobs: one per prompt token
  std::vector<float> embedding;               // kFinished with kStop of a request that pools
  FinishReason reason = FinishReason::kNone;  // kFinished
  int32_t stop_id = -1;  // kFinished by an end or stop id: which (it was not sent as a token)
  Error error;           // kFinished with kError
  Usage usage;           // kToken: so far; kFinished
  RequestTimes times;    // kFinished
};

// Where a request's events go. Called on a thread of the engine, one call at a time: must not
// block. Returns false when the receiver cannot take more (slow client): the engine then cancels
// the request. kFinished is always delivered and its return value ignored.
using EventSink = std::function<bool(Event&&)>;

}  // namespace headrace
