#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <random>

#include "server/api/json.h"
#include "server/api/openai/openai.h"

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

// What is read of a body before its answer is known.
struct ParsedBody {
  GenerationRequest request;
  PromptSource prompts;
  OpenAiAnswer answer;
  IgnoredFields ignored;
};

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

Status parse_streaming(const Fields& fields, ParsedBody& parsed) {
  parsed.request.stream = TRY(fields.boolean("stream")).value_or(false);
  const boost::json::object* options = TRY(fields.object("stream_options"));
  if (options == nullptr) return {};
  TRY(check_fields(*options, kInStreamOptions, "stream_options.", parsed.ignored));
  const Fields inner(*options, "stream_options.");
  OpenAiAnswer& answer = parsed.answer;
  answer.include_usage = TRY(inner.boolean("include_usage")).value_or(false);
  answer.continuous_usage =
      TRY(inner.boolean("continuous_usage_stats")).value_or(false) && answer.include_usage;
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

Result<std::string> parse_salt(const Fields& fields) {
  const auto salt = TRY(fields.text("cache_salt"));
  if (!salt) return std::string();
  if (salt->empty() || salt->size() > kMaxSaltBytes) {
    return bad_field("cache_salt", fmt::format("a string of {} bytes", salt->size()),
                     fmt::format("a string of 1 to {} bytes", kMaxSaltBytes));
  }
  return std::string(*salt);
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

// Sampling, lengths, stops and streaming: what both kinds of body share.
Status parse_common(const Fields& fields, const ServingModel& model, ParsedBody& parsed) {
  GenerationRequest& request = parsed.request;
  TRY(check_format(fields, parsed.ignored));
  TRY(parse_sampling(fields, model, request.prototype.sampling));
  TRY(parse_lengths(fields, model, request.prototype));
  TRY(parse_streaming(fields, parsed));
  request.stop = TRY(parse_stop(fields));
  request.include_stop = TRY(fields.boolean("include_stop_str_in_output")).value_or(false);
  request.skip_special = TRY(fields.boolean("skip_special_tokens")).value_or(true);
  request.num_choices = static_cast<int>(TRY(fields.integer("n", 1, kMaxChoices)).value_or(1));
  const auto best_of = TRY(fields.integer("best_of", 1, kMaxChoices));
  if (best_of && *best_of != request.num_choices) {
    return bad_field("best_of", fmt::format("{}", *best_of),
                     fmt::format("equal to n, {}", request.num_choices));
  }
  request.cache_salt = TRY(parse_salt(fields));
  return {};
}

// The whole but for its prompts.
ParsedRequest finish(ParsedBody&& parsed, const ServingModel& model,
                     decltype(make_chat_renderer)& make_renderer) {
  const std::string ignored = parsed.ignored.text();
  if (!ignored.empty()) parsed.request.headers.emplace_back(kIgnoredHeader, ignored);
  parsed.answer.num_top = parsed.request.prototype.num_logprobs;
  return {std::move(parsed.request), std::move(parsed.prompts),
          make_renderer(model, std::move(parsed.answer))};
}

}  // namespace

Result<ParsedRequest> parse_completion(const boost::json::object& body, const ServingModel& model) {
  ParsedBody parsed;
  GenerationRequest& request = parsed.request;
  parsed.answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInCompletion, "", parsed.ignored));
  const Fields fields(body);
  request.prototype.max_tokens = kDefaultCompletionTokens;
  request.has_max_tokens = true;
  TRY(parse_common(fields, model, parsed));
  request.echo = TRY(fields.boolean("echo")).value_or(false);
  TRY(parse_completion_logprobs(fields, request));
  if (request.prototype.max_tokens == 0 && !request.echo) {
    return bad_field("max_tokens", "0", "at least 1, unless echo is true");
  }
  parsed.prompts = TRY(parse_prompts(fields, model, request.num_choices));
  return finish(std::move(parsed), model, make_completion_renderer);
}

Result<ParsedRequest> parse_chat(const boost::json::object& body, const ServingModel& model) {
  ParsedBody parsed;
  Request& prototype = parsed.request.prototype;
  parsed.answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInChat, "", parsed.ignored));
  const Fields fields(body);
  prototype.max_tokens = static_cast<int32_t>(std::min<int64_t>(model.max_context, INT32_MAX));
  parsed.request.has_max_tokens =
      fields.find("max_tokens") != nullptr || fields.find("max_completion_tokens") != nullptr;
  TRY(parse_common(fields, model, parsed));
  if (prototype.max_tokens == 0) return bad_field("max_tokens", "0", "at least 1");
  const bool logprobs = TRY(fields.boolean("logprobs")).value_or(false);
  const auto top = TRY(fields.integer("top_logprobs", 0, kMaxLogprobs));
  if (logprobs) prototype.num_logprobs = static_cast<int>(top.value_or(0));
  if (top.value_or(0) > 0 && !logprobs) {
    return bad_field("logprobs", "false", "true when top_logprobs is given");
  }
  parsed.prompts.param = "messages";
  parsed.prompts.items.emplace_back(TRY(parse_conversation(body, model, parsed.ignored)));
  return finish(std::move(parsed), model, make_chat_renderer);
}

}  // namespace headrace
