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
#include "engine/infill_filter.h"

namespace headrace {

class Constraint;  // engine/constraint.h
struct Adapter;    // model/adapter.h

using RequestId = uint64_t;

// Lowers what would go on with a repetition: a token that followed an earlier place where the last
// `length` tokens stood, length >= allowed_length, loses multiplier * base^(length -
// allowed_length). Of several lengths the longest counts. Prompt and output are looked at; of the
// earlier places the last kMaxDryPlaces (engine/token_history.h), of lengths at most kMaxDryLength.
struct DryParams {
  float multiplier = 0;        // [0, 100]; 0: off
  float base = 1.75f;          // [1, 100]
  int32_t allowed_length = 2;  // [1, kMaxDryAllowed]
  int32_t window = -1;         // of the last tokens that are looked at; -1: all
  // Ascending ids that no repetition goes across, and that are not lowered; null: none.
  std::shared_ptr<const std::vector<int32_t>> breakers;
};

// Order of operations on logits: logit_bias, repetition / presence / frequency penalty, DRY; then
// what min_tokens, bad_words and a constraint forbid is left out; (greedy: argmax); temperature;
// top_n_sigma, top_k, typical_p, top_p, min_p, XTC, infill; draw. Mirostat stands in place of all
// from top_n_sigma to XTC. The order is llama.cpp's but for the temperature, which comes before the
// filters as in vLLM and transformers. Each filter leaves a run of neighbours in the order of
// falling probability, and the next looks at the shares of what is left. Log-probs are reported
// from the unmodified logits.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy, ties to the lowest id
  int32_t top_k = 0;                // 0 or -1: off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1], relative to the most likely token
  float repetition_penalty = 1.0f;  // > 0, over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2], over output
  float frequency_penalty = 0.0f;   // [-2, 2], over output
  float top_n_sigma = 0.0f;         // so many standard deviations below the best logit; 0: off
  float typical_p = 1.0f;           // (0, 1], share of the tokens of the most usual surprise
  // With this chance, of the tokens of at least the threshold's share only the least likely stays.
  float xtc_probability = 0.0f;  // [0, 1]
  float xtc_threshold = 0.1f;    // [0, 1]
  // Mirostat 2: leaves out what is more surprising than a bound that follows the surprise of the
  // tokens that came towards tau, in bits, by steps of eta.
  bool mirostat = false;
  float mirostat_tau = 5.0f;  // [0, 100]
  float mirostat_eta = 0.1f;  // [0, 1]
  DryParams dry;
  TextOfToken infill;  // what fills in a text is filtered, after XTC; empty: off. With top_k of
                       // 1 to kMaxInfillChoices
  uint64_t seed = 0;   // with choice and position, the whole state of the RNG
  uint32_t choice_idx = 0;                            // which of the answers to one request this is
  std::vector<std::pair<int32_t, float>> logit_bias;  // added before anything else
  std::vector<std::vector<int32_t>> bad_words;        // token sequences that no output completes
};

// Ends an output that goes round in a loop: whose last tokens are a block of min_block to max_block
// tokens, min_count times in a row.
struct RepetitionStop {
  int32_t min_block = 1;  // [1, max_block]
  int32_t max_block = 0;  // [0, kMaxLoopBlock] (engine/loop_watch.h); 0: off
  int32_t min_count = 2;  // at least 2
};

// When a beam search has enough hypotheses, as in transformers: kYes: as soon as there are as many
// as the beam is wide. Else when the best live beam is no better than the worst of these: at its
// present length (kNo), or at the length at which it could be best (kNever).
enum class EarlyStopping : uint8_t { kNo, kYes, kNever };

inline constexpr int kMaxBeams = 16;

// A search for the most likely outputs in place of drawing one (engine/beam_search.h). What shapes
// a draw (temperature, filters, seed) has no effect; what changes logits changes log-probs here,
// which are not normalised again. Nothing is told before the end: then all that is returned comes
// at once.
struct BeamParams {
  int32_t width = 0;         // beams side by side, at most kMaxBeams; 0: no search
  int32_t num_returned = 1;  // [1, width]
  float length_penalty = 1;  // [-10, 10]: a score is the log-prob by the length to this power
  EarlyStopping early_stopping = EarlyStopping::kNo;
};

struct BeamHypothesis {
  std::vector<int32_t> token_ids;  // without the id that ended it
  int32_t stop_id = -1;            // that id; -1: it is as long as it may be
  double logprob = 0;              // of all tokens together, the stop id's too
  double score = 0;
};

// Which states after the final norm become the one vector of a prompt: their mean, or one of them.
enum class Pooling : uint8_t { kNone, kMean, kFirst, kLast };

inline constexpr int kMaxPriority = 100;       // and its negative
inline constexpr int kMaxWaitMs = 86'400'000;  // of queue times and deadlines: a day

// What becomes of a request's prefixes when it ends: a hint. Low: they go before all others. High:
// they stay for `duration` after each request that says so, as far as the client's share of the
// cache goes; then they are as others.
struct Retention {
  enum class Priority : uint8_t { kLow, kNormal, kHigh };
  Priority priority = Priority::kNormal;
  TimeUs duration = 0;  // kHigh: microseconds
};

// Why tokens of a prompt were computed although its session, or somebody, had them before.
struct CacheMiss {
  enum class Reason : uint8_t { kNone, kEvicted, kEdited, kAdapter, kRope };
  Reason reason = Reason::kNone;
  int32_t offset = 0;         // of the first token that was not found; kEdited: that differs
  int32_t was = -1, is = -1;  // kEdited: the session's token there, and the prompt's
};

struct Request {
  std::vector<int32_t> prompt_ids;  // not empty; ids < vocab_size
  SamplingParams sampling;
  BeamParams beams;
  int32_t max_tokens = 16;          // output tokens; 0 only to score a prompt (prompt_logprobs) or
                                    // to pool it
  int32_t min_tokens = 0;           // stop ids are not sampled before this many
  std::vector<int32_t> stop_ids;    // end the sequence; the id is reported, not part of the text
  bool ignore_eos = false;          // the model's own end ids do not stop
  RepetitionStop repetition_stop;   // finishes with kStop and Event::repeats
  std::optional<int> num_logprobs;  // 0..20 alternatives beside each output token
  std::optional<int> num_prompt_logprobs;  // the same for each prompt token but the first
  std::vector<int32_t> predicted_ids;  // what the answer may be like: for guesses, no part of it
  std::vector<int32_t> label_ids;      // tokens whose log-probs come beside the first token
  Pooling pooling = Pooling::kNone;    // else a vector of the prompt is all that is wanted
  std::string client_id;               // x-request-id, for logs
  uint64_t client = 0;                 // who asks: waiting requests of different clients take turns
  int32_t priority = 0;      // among the client's own; lower comes earlier (waiting_room.h)
  TimeUs max_queue_us = 0;   // from submission to its start, then it ends; 0: no limit
  TimeUs deadline_us = 0;    // from arrival to its last token, then it ends; 0: no limit
  std::string cache_domain;  // prefixes are shared only between requests of one domain
  Retention retention;       // of its prefixes in the cache
  // What the client calls the conversation, in its cache domain; empty: nothing. And the one whose
  // errand it is: that one's prefix is used too.
  std::string session, parent_session;
  TimeUs arrived_us = 0;  // when the first byte came in, for the metrics; 0: at submission
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

// kExpired: its queue time or its deadline passed.
enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError, kExpired };

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t reasoning_tokens = 0;           // of the output; known to whoever takes the text apart
  int32_t predicted_tokens = 0;           // that the client expected; known to whoever asked
  int32_t accepted_predicted_tokens = 0;  // of the output: guessed from these
  CacheMiss miss = {};
};

struct RequestTimes {  // base/clock.h microseconds
  TimeUs submitted = 0, started = 0, first_token = 0, finished = 0;
};

// Events of one request arrive in order: kPromptLogprobs* kToken* kFinished. Exactly one kFinished.
// A beam search has no kToken.
struct Event {
  enum class Kind : uint8_t { kPromptLogprobs, kToken, kFinished };
  Kind kind = Kind::kToken;
  RequestId request_id = 0;
  int32_t token_id = -1;                  // kToken
  std::optional<TokenLogprobs> logprobs;  // kToken, if asked for
  std::vector<float> label_logprobs;      // first kToken, if asked for: one of each label
  std::vector<std::optional<TokenLogprobs>>
      prompt_logprobs;           // kPromptLogprobs: one per prompt token
  std::vector<float> embedding;  // kFinished with kStop of a request that pools
  // kFinished of a beam search that found them: num_returned, the best first. The reason and the
  // stop id are the first one's, the output tokens those of all.
  std::vector<BeamHypothesis> hypotheses;
  FinishReason reason = FinishReason::kNone;  // kFinished
  bool repeats = false;  // kFinished with kStop: for the loop that repetition_stop ends
  int32_t stop_id = -1;  // kFinished by an end or stop id: which (it was not sent as a token)
  Error error;           // kFinished, where it failed()
  Usage usage;           // kToken: so far; kFinished
  RequestTimes times;    // kFinished

  bool failed() const { return reason == FinishReason::kError || reason == FinishReason::kExpired; }
};

// Where a request's events go. Called on a thread of the engine, one call at a time: must not
// block. Returns false when the receiver cannot take more (slow client): the engine then cancels
// the request. kFinished is always delivered and its return value ignored.
using EventSink = std::function<bool(Event&&)>;

}  // namespace headrace
