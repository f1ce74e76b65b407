// sampling_fields: what a body says of sampling, lengths, stops and time, for every dialect: one
// reader with one set of limits. A dialect brings a table of what it calls each parameter:
//
//   constexpr SamplingName kNames[] = {{"temperature", SamplingField::kTemperature},
//                                      {"num_predict", SamplingField::kMaxTokensOrAll}, ...};
//   request.prototype.sampling = fresh_sampling(model);
//   TRY(read_sampling(Fields(options, "options."), kNames, model, request));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/serving_model.h"

namespace headrace {

enum class SamplingField : uint8_t {
  kTemperature,        // 0 to 100; 0 is greedy
  kTopP,               // above 0, at most 1
  kMinP,               // 0 to 1
  kRepetitionPenalty,  // 0.01 to 100
  kPresencePenalty,    // -2 to 2
  kFrequencyPenalty,   // -2 to 2
  kTopK,               // -1 and 0: off
  kSeed,               // a whole number
  kSeedOrRandom,       // the same; below 0: a random one
  kLogitBias,          // an object of at most 1024: token id to -100 .. 100
  kLogitBiasPairs,     // or a list of pairs [id, -100 .. 100]; false: the token never comes
  kMaxTokens,          // 0 or more
  kMaxTokensOrAll,     // the same; below 0: what the context leaves
  kMinTokens,          // 0 to max tokens
  kIgnoreEos,          // true or false
  kStopIds,            // at most 128 ids
  kStop,               // a string or a list of at most 32, each 1 to 256 bytes
  kTypicalP,           // 0 to 1; 0 and 1: off
  kTopNSigma,          // -1 to 100; 0 and below: off
  kXtcProbability,     // 0 to 1
  kXtcThreshold,       // 0 to 1
  kMirostat,           // 0: off; 2
  kMirostatTau,        // 0 to 100
  kMirostatEta,        // 0 to 1
  kDryMultiplier,      // 0 to 100; 0: off
  kDryBase,            // 0 to 100; below 1: off
  kDryAllowedLength,   // 1 to 64
  kDryWindow,          // -1: the whole text; 0: off
  kDryBreakers,        // at most 32 texts of 1 to 64 bytes
  kBadWords,           // at most 128 texts of 1 to 256 bytes
  kRepetitionStop,     // {max_pattern_size, min_pattern_size, min_count}
};

struct SamplingName {
  std::string_view name;
  SamplingField field;
};

// What all dialects call by the same names: those of llama.cpp and vLLM.
inline constexpr SamplingName kFurtherSamplingNames[] = {
    {"typical_p", SamplingField::kTypicalP},
    {"top_n_sigma", SamplingField::kTopNSigma},
    {"xtc_probability", SamplingField::kXtcProbability},
    {"xtc_threshold", SamplingField::kXtcThreshold},
    {"mirostat", SamplingField::kMirostat},
    {"mirostat_tau", SamplingField::kMirostatTau},
    {"mirostat_eta", SamplingField::kMirostatEta},
    {"dry_multiplier", SamplingField::kDryMultiplier},
    {"dry_base", SamplingField::kDryBase},
    {"dry_allowed_length", SamplingField::kDryAllowedLength},
    {"dry_penalty_last_n", SamplingField::kDryWindow},
    {"dry_sequence_breakers", SamplingField::kDryBreakers},
    {"bad_words", SamplingField::kBadWords},
    {"repetition_detection", SamplingField::kRepetitionStop},
};

// As the checkpoint recommends, with a seed of its own.
SamplingParams fresh_sampling(const ServingModel& model);

// Reads the members of `fields` that have a name here, in the order of the names: what limits
// another comes before it (kMaxTokens before kMinTokens), and of two names for one parameter the
// later counts. What is absent stays as it is. kInvalidArgument names the field.
Status read_sampling(const Fields& fields, std::span<const SamplingName> names,
                     const ServingModel& model, GenerationRequest& request);

// "priority", "max_queue_ms" and "deadline_ms": when a request is computed, and until when.
Status read_schedule(const Fields& fields, Request& request);

// How many alternatives of each token a request may ask for.
inline constexpr int kMaxLogprobs = 20;
// "logprobs", true or false, and "top_logprobs", which needs it.
Status read_logprobs(const Fields& fields, Request& request);

// "repeat_last_n", how far back the repetition penalty looks: here at the whole text. -1 says that,
// and so does 64, which those who have a window use if nothing is said; 0 means no penalty. Another
// window is kUnsupported where there is a penalty.
Status read_penalty_window(const Fields& fields, SamplingParams& sampling);

}  // namespace headrace
