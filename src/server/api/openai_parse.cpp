#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <random>

#include "server/api/fields.h"
#include "server/api/json.h"
#include "server/api/openai.h"
#include "server/api/openai_prompt.h"

namespace headrace {
namespace {

constexpr int kMaxChoices = 16;
constexpr int kMaxLogprobs = 20;
constexpr size_t kMaxStops = 32;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxStopIds = 128;
constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxSaltBytes = 256;
constexpr int32_t kDefaultCompletionTokens = 16;

struct NumberRow {
  std::string_view name;
  double low, high;
  float SamplingParams::* member;
};

constexpr NumberRow kNumbers[] = {
    {"temperature", 0, 100, &SamplingParams::temperature},
    {"top_p", 0, 1, &SamplingParams::top_p},
    {"min_p", 0, 1, &SamplingParams::min_p},
    {"repetition_penalty", 0.01, 100, &SamplingParams::repetition_penalty},
    {"presence_penalty", -2, 2, &SamplingParams::presence_penalty},
    {"frequency_penalty", -2, 2, &SamplingParams::frequency_penalty},
};

uint64_t random_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

Result<uint64_t> parse_seed(const Fields& fields) {
  const boost::json::value* value = fields.find("seed");
  if (value == nullptr) return random_seed();
  if (value->is_uint64()) return value->get_uint64();
  const auto number = whole_number(*value);
  if (!number) return bad_field("seed", show_value(*value), "a whole number");
  return static_cast<uint64_t>(*number);
}

Result<std::vector<std::pair<int32_t, float>>> parse_bias(const Fields& fields,
                                                          int64_t vocab_size) {
  std::vector<std::pair<int32_t, float>> biases;
  const boost::json::object* object = TRY(fields.object("logit_bias"));
  if (object == nullptr) return biases;
  if (object->size() > kMaxBiases) {
    return bad_field("logit_bias", fmt::format("an object of {} members", object->size()),
                     fmt::format("at most {}", kMaxBiases));
  }
  for (const auto& [key, value] : *object) {
    const std::string_view text(key.data(), key.size());
    int64_t id = -1;
    const bool digits = !text.empty() && text.size() <= 9 &&
                        text.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits) id = std::stoll(std::string(text));
    if (id < 0 || id >= vocab_size) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("logit_bias has the key {}, but its keys must be token ids from 0 to "
                      "{}",
                      show_value(boost::json::string(text)), vocab_size - 1),
          {},
          "logit_bias"};
    }
    const double bias = value.is_number() ? value.to_number<double>() : NAN;
    if (!(bias >= -100 && bias <= 100)) {
      return bad_field(fmt::format("logit_bias.{}", text), show_value(value),
                       "a number from -100 to 100");
    }
    biases.emplace_back(static_cast<int32_t>(id), static_cast<float>(bias));
  }
  return biases;
}

Result<std::vector<std::string>> parse_stop(const Fields& fields) {
  const boost::json::value* value = fields.find("stop");
  std::vector<std::string> stops;
  if (value == nullptr) return stops;
  const auto add = [&](const boost::json::value& item) -> Status {
    if (!item.is_string() || item.get_string().empty() ||
        item.get_string().size() > kMaxStopBytes) {
      return bad_field("stop", item.is_array() ? "a list in a list" : show_value(item),
                       fmt::format("strings of 1 to {} bytes", kMaxStopBytes));
    }
    stops.emplace_back(item.get_string().data(), item.get_string().size());
    return {};
  };
  if (!value->is_array()) {
    TRY(add(*value));
    return stops;
  }
  if (value->get_array().size() > kMaxStops) {
    return bad_field("stop", show_value(*value), fmt::format("at most {} strings", kMaxStops));
  }
  for (const boost::json::value& item : value->get_array()) TRY(add(item));
  return stops;
}

Status parse_sampling(const Fields& fields, const ServingModel& model, SamplingParams& sampling) {
  sampling = default_sampling(model.text.sampling);
  for (const NumberRow& row : kNumbers) {
    const auto number = TRY(fields.number(row.name, row.low, row.high));
    if (number) sampling.*row.member = static_cast<float>(*number);
  }
  if (sampling.top_p <= 0) {
    return bad_field("top_p", "0", "a number above 0 and at most 1");
  }
  const auto top_k = TRY(fields.integer("top_k", -1, INT32_MAX));
  if (top_k) sampling.top_k = static_cast<int32_t>(*top_k);
  sampling.seed = TRY(parse_seed(fields));
  sampling.logit_bias = TRY(parse_bias(fields, model.info.vocab_size));
  return {};
}

Status parse_lengths(const Fields& fields, const ServingModel& model, Request& request) {
  const auto max_tokens = TRY(fields.integer("max_tokens", 0, INT32_MAX));
  const auto max_completion = TRY(fields.integer("max_completion_tokens", 0, INT32_MAX));
  if (max_tokens) request.max_tokens = static_cast<int32_t>(*max_tokens);
  if (max_completion) request.max_tokens = static_cast<int32_t>(*max_completion);
  const int64_t most = std::min<int64_t>(request.max_tokens, model.max_context);
  const auto min_tokens = TRY(fields.integer("min_tokens", 0, most));
  request.min_tokens = static_cast<int32_t>(min_tokens.value_or(0));
  request.ignore_eos = TRY(fields.boolean("ignore_eos")).value_or(false);
  const boost::json::array* stop_ids = TRY(fields.array("stop_token_ids"));
  if (stop_ids == nullptr) return {};
  if (stop_ids->size() > kMaxStopIds) {
    return bad_field("stop_token_ids", fmt::format("a list of {}", stop_ids->size()),
                     fmt::format("at most {} ids", kMaxStopIds));
  }
  request.stop_ids =
      TRY(parse_ids(*stop_ids, "stop_token_ids", model.info.vocab_size, kMaxStopIds));
  return {};
}

Status parse_streaming(const Fields& fields, GenerationRequest& request) {
  request.stream = TRY(fields.boolean("stream")).value_or(false);
  const boost::json::object* options = TRY(fields.object("stream_options"));
  if (options == nullptr) return {};
  TRY(check_fields(*options, kInStreamOptions, "stream_options.", request.ignored));
  const Fields inner(*options, "stream_options.");
  request.include_usage = TRY(inner.boolean("include_usage")).value_or(false);
  request.continuous_usage =
      TRY(inner.boolean("continuous_usage_stats")).value_or(false) && request.include_usage;
  return {};
}

// Of type text: nothing else is held to.
Status check_format(const Fields& fields, IgnoredFields& ignored) {
  const boost::json::object* format = TRY(fields.object("response_format"));
  if (format == nullptr) return {};
  const auto type = TRY(Fields(*format, "response_format.").text("type"));
  if (type == "text") return check_fields(*format, kInFormat, "response_format.", ignored);
  Error error =
      bad_field("response_format", fmt::format("'{}'", type.value_or("")), "of type 'text'");
  error.code = ErrorCode::kUnsupported;
  error.hint = "constrained output is not supported by this server yet";
  return error;
}

// Prefixes are shared only within a domain: of a key, if there are keys, and of a salt. Both have
// one spelling, so that no two domains read the same.
Result<std::string> cache_domain(const Fields& fields, const Caller& caller) {
  std::string domain = caller.has_key ? fmt::format("{:016x}", caller.client) : std::string();
  const auto salt = TRY(fields.text("cache_salt"));
  if (!salt) return domain;
  if (salt->empty() || salt->size() > kMaxSaltBytes) {
    return bad_field("cache_salt", fmt::format("a string of {} bytes", salt->size()),
                     fmt::format("a string of 1 to {} bytes", kMaxSaltBytes));
  }
  return fmt::format("{}/{}", domain, *salt);
}

// `logprobs` of a completion: a number; false means none.
Status parse_completion_logprobs(const Fields& fields, GenerationRequest& request) {
  const boost::json::value* value = fields.find("logprobs");
  if (value == nullptr || (value->is_bool() && !value->get_bool())) return {};
  const auto count = TRY(fields.integer("logprobs", 0, kMaxLogprobs));
  request.prototype.num_logprobs = static_cast<int>(*count);
  if (request.echo) request.prototype.num_prompt_logprobs = static_cast<int>(*count);
  return {};
}

}  // namespace

Request GenerationRequest::engine_request(size_t choice_idx, int64_t max_context) const {
  const size_t n = static_cast<size_t>(num_choices);
  Request request = prototype;
  request.prompt_ids = prompts[choice_idx / n].ids;
  request.sampling.choice_idx = static_cast<uint32_t>(choice_idx % n);
  const int64_t room = max_context - static_cast<int64_t>(request.prompt_ids.size());
  request.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.max_tokens, room));
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
  return request;
}

size_t score_bytes(int num_alternatives) {
  return 80 * (static_cast<size_t>(num_alternatives) + 2);
}

Result<std::string> asked_model(const boost::json::object& body, const ServingModel& model) {
  const auto name = TRY(Fields(body).text("model"));
  if (!name || name->empty()) return model.info.name;
  if (std::find(model.names.begin(), model.names.end(), *name) != model.names.end()) {
    return std::string(*name);
  }
  return Error{ErrorCode::kNotFound,
               fmt::format("the model {} does not exist here, this server has '{}'",
                           show_value(boost::json::string(*name)), model.info.name),
               {},
               "model"};
}

namespace {

// Sampling, lengths, stops and streaming: what both kinds of body share. Fills all but prompts.
Status parse_common(const boost::json::object& body, const ServingModel& model,
                    const Caller& caller, GenerationRequest& request) {
  const Fields fields(body);
  TRY(check_format(fields, request.ignored));
  TRY(parse_sampling(fields, model, request.prototype.sampling));
  TRY(parse_lengths(fields, model, request.prototype));
  TRY(parse_streaming(fields, request));
  request.stop = TRY(parse_stop(fields));
  request.include_stop = TRY(fields.boolean("include_stop_str_in_output")).value_or(false);
  request.skip_special = TRY(fields.boolean("skip_special_tokens")).value_or(true);
  request.num_choices = static_cast<int>(TRY(fields.integer("n", 1, kMaxChoices)).value_or(1));
  const auto best_of = TRY(fields.integer("best_of", 1, kMaxChoices));
  if (best_of && *best_of != request.num_choices) {
    return bad_field("best_of", fmt::format("{}", *best_of),
                     fmt::format("equal to n, {}", request.num_choices));
  }
  request.prototype.cache_domain = TRY(cache_domain(fields, caller));
  request.prototype.client_id = caller.request_id;
  request.prototype.client = caller.client;
  request.prototype.arrived_us = caller.arrived_us;
  return {};
}

// What the request holds from now on: its prompts and, as their number is known, the log-probs of
// their tokens. An answer that was asked for in full and can never fit is refused before any work.
Status take_memory(Caller& caller, bool has_max_tokens, int64_t max_context,
                   GenerationRequest& request) {
  const Request& asked = request.prototype;
  const auto n = static_cast<size_t>(request.num_choices);
  const bool keeps_scores = asked.num_logprobs && has_max_tokens && !request.stream;
  size_t held = 0;
  size_t answer = 0;
  for (const Prompt& prompt : request.prompts) {
    const size_t num_tokens = prompt.ids.size();
    held += prompt.ids.capacity() * sizeof(int32_t) + prompt.echo_text.capacity();
    if (asked.num_prompt_logprobs) held += num_tokens * n * score_bytes(*asked.num_prompt_logprobs);
    const int64_t room = max_context - static_cast<int64_t>(num_tokens);
    const auto longest = static_cast<size_t>(std::min<int64_t>(asked.max_tokens, room));
    if (keeps_scores) answer += longest * n * score_bytes(*asked.num_logprobs);
  }
  ByteBudget::Lease memory = std::move(caller.memory);
  if (held + answer > memory.limit()) {
    Error error = bad_field(
        "logprobs", fmt::format("for up to {} MiB of scores", ((held + answer) >> 20) + 1),
        fmt::format("for at most {} MiB, all that this server lends", memory.limit() >> 20));
    error.hint = "ask for fewer prompts, choices, tokens or alternatives at once";
    return error;
  }
  if (!memory.resize(held)) {
    return Error{ErrorCode::kExhausted,
                 fmt::format("this request needs {} MiB for prompts and scores, and other requests "
                             "hold what this server lends",
                             (held >> 20) + 1),
                 "try again later",
                 {}};
  }
  request.memory = std::move(memory);
  return {};
}

}  // namespace

Result<GenerationRequest> parse_completion(const boost::json::object& body,
                                           const ServingModel& model, Caller caller) {
  GenerationRequest request;
  request.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInCompletion, "", request.ignored));
  const Fields fields(body);
  request.prototype.max_tokens = kDefaultCompletionTokens;
  TRY(parse_common(body, model, caller, request));
  request.echo = TRY(fields.boolean("echo")).value_or(false);
  TRY(parse_completion_logprobs(fields, request));
  if (request.prototype.max_tokens == 0 && !request.echo) {
    return bad_field("max_tokens", "0", "at least 1, unless echo is true");
  }
  TRY(parse_prompts(fields, model, EncodeLimits{.stopped = caller.left}, request));
  TRY(take_memory(caller, true, model.max_context, request));
  return request;
}

Result<GenerationRequest> parse_chat(const boost::json::object& body, const ServingModel& model,
                                     Caller caller) {
  GenerationRequest request;
  request.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInChat, "", request.ignored));
  const Fields fields(body);
  request.prototype.max_tokens =
      static_cast<int32_t>(std::min<int64_t>(model.max_context, INT32_MAX));
  TRY(parse_common(body, model, caller, request));
  if (request.prototype.max_tokens == 0) return bad_field("max_tokens", "0", "at least 1");
  const bool logprobs = TRY(fields.boolean("logprobs")).value_or(false);
  const auto top = TRY(fields.integer("top_logprobs", 0, kMaxLogprobs));
  if (logprobs) request.prototype.num_logprobs = static_cast<int>(top.value_or(0));
  if (top.value_or(0) > 0 && !logprobs) {
    return bad_field("logprobs", "false", "true when top_logprobs is given");
  }
  Prompt prompt;
  const EncodeLimits limits{.max_tokens = model.max_context, .stopped = caller.left};
  prompt.ids = TRY(chat_prompt_ids(body, model, limits, request.ignored));
  TRY(check_prompt(prompt.ids, "messages", true, model));
  request.prompts.push_back(std::move(prompt));
  const bool has_max_tokens =
      fields.find("max_tokens") != nullptr || fields.find("max_completion_tokens") != nullptr;
  TRY(take_memory(caller, has_max_tokens, model.max_context, request));
  return request;
}

}  // namespace headrace
