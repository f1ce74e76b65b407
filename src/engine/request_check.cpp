#include "engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "engine/loop_watch.h"
#include "engine/token_history.h"

namespace headrace {
namespace {

template <typename... Args>
Error bad_field(std::string_view param, fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format(format, std::forward<Args>(args)...),
               {},
               std::string(param)};
}

Status check_number(std::string_view param, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return bad_field(param, "{} is {}, it must be between {} and {}", param, value, low, high);
}

Status check_id(std::string_view param, int32_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return bad_field(param, "{} holds token id {}, this model's ids are 0 to {}", param, id,
                   vocab_size - 1);
}

Status check_prompt(const Request& request, const RequestLimits& limits) {
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (num_prompt == 0)
    return bad_field("prompt", "the prompt is empty, it needs at least one token");
  const int64_t max_prompt = limits.max_context - (request.max_tokens > 0 ? 1 : 0);
  if (num_prompt > max_prompt) {
    Error error = bad_field(
        "prompt", "the prompt has {} tokens, the context of this server holds {}{}", num_prompt,
        limits.max_context, request.max_tokens > 0 ? " including at least one of output" : "");
    error.hint = "shorten the prompt, or start the server with a larger context or more KV memory";
    return error;
  }
  for (const int32_t id : request.prompt_ids) TRY(check_id("prompt", id, limits.vocab_size));
  return {};
}

Status check_counts(const Request& request) {
  const bool scores = request.num_prompt_logprobs.has_value();
  const bool pools = request.pooling != Pooling::kNone;
  if (request.max_tokens < 0 || (request.max_tokens == 0 && !scores && !pools)) {
    return bad_field("max_tokens",
                     "max_tokens is {}, it must be at least 1 (0 only to score a prompt)",
                     request.max_tokens);
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return bad_field("min_tokens", "min_tokens is {}, it must be between 0 and max_tokens, {}",
                     request.min_tokens, request.max_tokens);
  }
  if (pools && (request.max_tokens > 0 || scores)) {
    return bad_field("pooling", "max_tokens is {}{}, but a request that pools does nothing else",
                     request.max_tokens, scores ? " and the prompt is scored" : "");
  }
  TRY(check_number("logprobs", request.num_logprobs.value_or(0), 0, kMaxLogprobs));
  TRY(check_number("prompt_logprobs", request.num_prompt_logprobs.value_or(0), 0, kMaxLogprobs));
  return {};
}

Status check_dry(const DryParams& dry) {
  TRY(check_number("dry_multiplier", dry.multiplier, 0, 100));
  TRY(check_number("dry_base", dry.base, 1, 100));
  TRY(check_number("dry_allowed_length", dry.allowed_length, 1, kMaxDryAllowed));
  return check_number("dry_penalty_last_n", dry.window, -1, INT32_MAX);
}

Status check_words(const std::vector<std::vector<int32_t>>& words, int64_t vocab_size) {
  const size_t num_ids =
      std::accumulate(words.begin(), words.end(), size_t{0},
                      [](size_t sum, const auto& word) { return sum + word.size(); });
  TRY(check_number("bad_words", static_cast<double>(num_ids), 0,
                   static_cast<double>(kMaxListedIds)));
  for (const std::vector<int32_t>& word : words) {
    if (word.empty()) return bad_field("bad_words", "bad_words holds a word without tokens");
    for (const int32_t id : word) TRY(check_id("bad_words", id, vocab_size));
  }
  return {};
}

Status check_repetition(const RepetitionStop& stop) {
  TRY(check_number("max_pattern_size", stop.max_block, 0, kMaxLoopBlock));
  if (stop.max_block == 0) return {};
  TRY(check_number("min_pattern_size", stop.min_block, 1, stop.max_block));
  return check_number("min_count", stop.min_count, 2, INT32_MAX);
}

Status check_sampling(const SamplingParams& sampling, int64_t vocab_size) {
  TRY(check_number("temperature", sampling.temperature, 0, 100));
  TRY(check_number("top_k", sampling.top_k, -1, INT32_MAX));
  TRY(check_number("top_p", sampling.top_p, 0, 1));
  if (sampling.top_p == 0)
    return bad_field("top_p", "top_p is 0, it must be above 0 and at most 1");
  TRY(check_number("min_p", sampling.min_p, 0, 1));
  TRY(check_number("repetition_penalty", sampling.repetition_penalty, 0.01, 100));
  TRY(check_number("presence_penalty", sampling.presence_penalty, -2, 2));
  TRY(check_number("frequency_penalty", sampling.frequency_penalty, -2, 2));
  TRY(check_number("top_n_sigma", sampling.top_n_sigma, 0, 100));
  TRY(check_number("typical_p", sampling.typical_p, 0, 1));
  if (sampling.typical_p == 0)
    return bad_field("typical_p", "typical_p is 0, it must be above 0 and at most 1");
  TRY(check_number("xtc_probability", sampling.xtc_probability, 0, 1));
  TRY(check_number("xtc_threshold", sampling.xtc_threshold, 0, 1));
  TRY(check_number("mirostat_tau", sampling.mirostat_tau, 0, 100));
  TRY(check_number("mirostat_eta", sampling.mirostat_eta, 0, 1));
  TRY(check_dry(sampling.dry));
  TRY(check_words(sampling.bad_words, vocab_size));
  TRY(check_number("logit_bias", static_cast<double>(sampling.logit_bias.size()), 0,
                   static_cast<double>(kMaxListedIds)));
  for (const auto& [id, bias] : sampling.logit_bias) {
    TRY(check_id("logit_bias", id, vocab_size));
    TRY(check_number("logit_bias", bias, -1e6, 1e6));
  }
  return {};
}

// What a search has no place for. In the order in which it is named.
Status check_beside_beams(const Request& request) {
  const std::pair<std::string_view, bool> others[] = {
      {"logprobs", request.num_logprobs.has_value() || !request.label_ids.empty()},
      {"prompt_logprobs", request.num_prompt_logprobs.has_value()},
      {"pooling", request.pooling != Pooling::kNone},
      {"mirostat", request.sampling.mirostat},
      {"repetition_detection", request.repetition_stop.max_block > 0},
  };
  for (const auto& [name, is_given] : others) {
    if (is_given) return bad_field(name, "{} cannot be combined with beam search", name);
  }
  if (request.constraint == nullptr) return {};
  Error error = bad_field("use_beam_search",
                          "a beam search cannot be held to a schema, a grammar or declared tools");
  error.hint = "leave the form of the answer free, or draw it";
  return error;
}

// A search that memory cuts short would give another answer on another server.
Status check_beam_room(const Request& request, const RequestLimits& limits) {
  const int32_t width = request.beams.width;
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t wanted = std::min(limits.max_context, num_prompt + request.max_tokens);
  const int64_t longest = limits.beams.longest(width, num_prompt, wanted);
  if (longest == wanted) return {};
  const std::string_view place = "blocks that this server has for keys and values";
  Error error;
  if (longest == 0) {
    error = bad_field("n", "{} beams after a prompt of {} tokens need more than the {} {}", width,
                      num_prompt, limits.beams.num_blocks, place);
    error.hint = "ask for fewer beams, shorten the prompt, or start the server with more KV memory";
  } else {
    error = bad_field("max_tokens",
                      "{} beams of {} tokens after a prompt of {} need more than the {} {}, which "
                      "hold {} tokens of each",
                      width, wanted - num_prompt, num_prompt, limits.beams.num_blocks, place,
                      longest - num_prompt);
    error.hint = fmt::format(
        "ask for at most {} tokens or for fewer beams, or start the server with more KV memory",
        longest - num_prompt);
  }
  return error;
}

Status check_beams(const Request& request, const RequestLimits& limits) {
  const BeamParams& beams = request.beams;
  if (beams.width == 0) return {};
  const int most = std::min(kMaxBeams, limits.beams.max_width);
  if (beams.width < 0 || beams.width > most) {
    return bad_field("n", "{} beams are asked for, this server runs 1 to {} side by side",
                     beams.width, most);
  }
  TRY(check_number("n", beams.num_returned, 1, beams.width));
  TRY(check_number("length_penalty", double{beams.length_penalty}, -10, 10));
  TRY(check_beside_beams(request));
  return check_beam_room(request, limits);
}

}  // namespace

Status check_request(const Request& request, const RequestLimits& limits) {
  TRY(check_counts(request));
  TRY(check_prompt(request, limits));
  TRY(check_sampling(request.sampling, limits.vocab_size));
  TRY(check_repetition(request.repetition_stop));
  if (request.stop_ids.size() > kMaxListedIds) {
    return bad_field("stop_token_ids", "{} stop ids are given, at most {} are taken",
                     request.stop_ids.size(), kMaxListedIds);
  }
  for (const int32_t id : request.stop_ids) TRY(check_id("stop_token_ids", id, limits.vocab_size));
  TRY(check_number("label_ids", static_cast<double>(request.label_ids.size()), 0, kMaxLabels));
  for (const int32_t id : request.label_ids) TRY(check_id("label_ids", id, limits.vocab_size));
  TRY(check_number("priority", request.priority, -kMaxPriority, kMaxPriority));
  TRY(check_number("max_queue_ms", static_cast<double>(request.max_queue_us) / 1000, 0,
                   kMaxWaitMs));
  TRY(check_number("deadline_ms", static_cast<double>(request.deadline_us) / 1000, 0, kMaxWaitMs));
  return check_beams(request, limits);
}

}  // namespace headrace
