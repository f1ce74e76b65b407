#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <random>

#include "server/fields.h"
#include "server/json.h"
#include "server/openai.h"

namespace headrace {
namespace {

constexpr int kMaxChoices = 16;
constexpr size_t kMaxTotalChoices = 1024;
constexpr int kMaxLogprobs = 20;
constexpr size_t kMaxStops = 32;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxStopIds = 128;
constexpr size_t kMaxBiases = 1024;
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

// Fields that would change the answer and are not served: refused, never ignored.
constexpr std::string_view kRefused[] = {
    "guided_json",        "guided_regex",    "guided_choice",  "guided_grammar",
    "structured_outputs", "grammar",         "structural_tag", "suffix",
    "bad_words",          "prompt_logprobs", "audio",          "allowed_token_ids",
};

SamplingParams default_sampling(const SamplingDefaults& defaults) {
  SamplingParams sampling;
  if (defaults.temperature) sampling.temperature = *defaults.temperature;
  if (defaults.top_p) sampling.top_p = *defaults.top_p;
  if (defaults.min_p) sampling.min_p = *defaults.min_p;
  if (defaults.repetition_penalty) sampling.repetition_penalty = *defaults.repetition_penalty;
  if (defaults.top_k) sampling.top_k = *defaults.top_k;
  return sampling;
}

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

Result<std::vector<int32_t>> parse_ids(const boost::json::array& array, std::string_view param,
                                       int64_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const boost::json::value& value : array) {
    const auto id = whole_number(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} holds {}, but token ids are whole numbers from 0 to {}", param,
                               show_value(value), vocab_size - 1),
                   {},
                   std::string(param)};
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
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
  request.stop_ids = TRY(parse_ids(*stop_ids, "stop_token_ids", model.info.vocab_size));
  return {};
}

Status parse_streaming(const Fields& fields, GenerationRequest& request) {
  request.stream = TRY(fields.boolean("stream")).value_or(false);
  const boost::json::object* options = TRY(fields.object("stream_options"));
  if (options == nullptr) return {};
  const Fields inner(*options, "stream_options.");
  request.include_usage = TRY(inner.boolean("include_usage")).value_or(false);
  request.continuous_usage =
      TRY(inner.boolean("continuous_usage_stats")).value_or(false) && request.include_usage;
  return {};
}

// What asks for something this server does not do yet.
Status refuse_unserved(const Fields& fields) {
  for (const std::string_view name : kRefused) {
    const boost::json::value* value = fields.find(name);
    if (value == nullptr) continue;
    if (value->is_string() && value->get_string().empty()) continue;
    if (value->is_array() && value->get_array().empty()) continue;
    return Error{ErrorCode::kUnsupported, fmt::format("{} is not supported by this server", name),
                 "leave it out", std::string(name)};
  }
  const boost::json::object* format = TRY(fields.object("response_format"));
  if (format != nullptr) {
    const auto type = TRY(Fields(*format, "response_format.").text("type"));
    if (type != "text") {
      Error error =
          bad_field("response_format", fmt::format("'{}'", type.value_or("")), "of type 'text'");
      error.code = ErrorCode::kUnsupported;
      error.hint = "constrained output is not supported by this server yet";
      return error;
    }
  }
  const auto beams = TRY(fields.boolean("use_beam_search"));
  if (beams.value_or(false)) return bad_field("use_beam_search", "true", "false");
  return {};
}

// The four forms of "prompt": text, list of texts, ids, list of lists of ids.
Result<std::vector<Prompt>> parse_prompts(const Fields& fields, const ServingModel& model) {
  constexpr std::string_view kNeeded =
      "a string, a list of strings, a list of token ids or a list of such lists";
  const bool add_special = TRY(fields.boolean("add_special_tokens")).value_or(true);
  const boost::json::value* value = fields.find("prompt");
  if (value == nullptr) return bad_field("prompt", "missing", kNeeded);
  std::vector<Prompt> prompts;
  const auto add_text = [&](const boost::json::string& text) -> Status {
    const std::string_view view(text.data(), text.size());
    auto ids = TRY(model.text.encode_prompt(view, add_special));
    prompts.push_back({std::move(ids), std::string(view)});
    return {};
  };
  const auto add_ids = [&](const boost::json::array& array) -> Status {
    auto ids = TRY(parse_ids(array, "prompt", model.info.vocab_size));
    prompts.push_back({std::move(ids), {}});
    return {};
  };
  if (value->is_string()) {
    TRY(add_text(value->get_string()));
    return prompts;
  }
  if (!value->is_array()) return bad_field("prompt", show_value(*value), kNeeded);
  const boost::json::array& array = value->get_array();
  if (array.empty()) return bad_field("prompt", "an empty list", kNeeded);
  if (array[0].is_number()) {
    TRY(add_ids(array));
    return prompts;
  }
  if (array.size() > kMaxTotalChoices) {
    return bad_field("prompt", show_value(*value),
                     fmt::format("at most {} prompts", kMaxTotalChoices));
  }
  for (const boost::json::value& item : array) {
    if (item.kind() != array[0].kind() || (!item.is_string() && !item.is_array())) {
      return bad_field("prompt", fmt::format("a list that holds {}", show_value(item)), kNeeded);
    }
    if (item.is_string()) {
      TRY(add_text(item.get_string()));
    } else {
      TRY(add_ids(item.get_array()));
    }
  }
  return prompts;
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
  request.sampling.seed += choice_idx % n;
  const int64_t room = max_context - static_cast<int64_t>(request.prompt_ids.size());
  request.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.max_tokens, room));
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
  request.client_id = request_id;
  return request;
}

Status check_model_name(const boost::json::object& body, const ServingModel& model) {
  const auto name = TRY(Fields(body).text("model"));
  if (!name || name->empty()) return {};
  if (std::find(model.names.begin(), model.names.end(), *name) != model.names.end()) return {};
  return Error{ErrorCode::kNotFound,
               fmt::format("the model {} does not exist here, this server has '{}'",
                           show_value(boost::json::string(*name)), model.info.name),
               {},
               "model"};
}

Status check_prompt(std::span<const int32_t> ids, std::string_view param, bool needs_room,
                    const ServingModel& model) {
  if (ids.empty()) return bad_field(param, "empty", "at least one token");
  const int64_t num_tokens = static_cast<int64_t>(ids.size());
  if (num_tokens > model.max_context || (needs_room && num_tokens == model.max_context)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the prompt has {} tokens, but this model's maximum context length is "
                             "{} tokens, prompt and answer together",
                             num_tokens, model.max_context),
                 "shorten the prompt", std::string(param)};
  }
  return {};
}

Status parse_common(const boost::json::object& body, const ServingModel& model,
                    GenerationRequest& request) {
  const Fields fields(body);
  TRY(refuse_unserved(fields));
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
  return {};
}

Result<GenerationRequest> parse_completion(const boost::json::object& body,
                                           const ServingModel& model) {
  TRY(check_model_name(body, model));
  const Fields fields(body);
  GenerationRequest request;
  request.prototype.max_tokens = kDefaultCompletionTokens;
  TRY(parse_common(body, model, request));
  request.echo = TRY(fields.boolean("echo")).value_or(false);
  TRY(parse_completion_logprobs(fields, request));
  const bool scores_only = request.prototype.max_tokens == 0;
  if (scores_only && !request.echo) {
    return bad_field("max_tokens", "0", "at least 1, unless echo is true");
  }
  if (scores_only && !request.prototype.num_prompt_logprobs) {
    request.prototype.num_prompt_logprobs = 0;
  }
  request.prompts = TRY(parse_prompts(fields, model));
  if (request.total_choices() > kMaxTotalChoices) {
    return bad_field("n",
                     fmt::format("{} for {} prompts", request.num_choices, request.prompts.size()),
                     fmt::format("such that there are at most {} choices", kMaxTotalChoices));
  }
  for (Prompt& prompt : request.prompts) {
    TRY(check_prompt(prompt.ids, "prompt", !scores_only, model));
    if (!request.echo) {
      prompt.echo_text.clear();
    } else if (prompt.echo_text.empty()) {
      prompt.echo_text =
          valid_utf8(TRY(model.text.tokenizer->decode(prompt.ids, request.skip_special)));
    }
  }
  return request;
}

Result<GenerationRequest> parse_chat(const boost::json::object& body, const ServingModel& model) {
  TRY(check_model_name(body, model));
  const Fields fields(body);
  GenerationRequest request;
  request.prototype.max_tokens =
      static_cast<int32_t>(std::min<int64_t>(model.max_context, INT32_MAX));
  TRY(parse_common(body, model, request));
  if (request.prototype.max_tokens == 0) return bad_field("max_tokens", "0", "at least 1");
  const bool logprobs = TRY(fields.boolean("logprobs")).value_or(false);
  const auto top = TRY(fields.integer("top_logprobs", 0, kMaxLogprobs));
  if (logprobs) request.prototype.num_logprobs = static_cast<int>(top.value_or(0));
  if (top.value_or(0) > 0 && !logprobs) {
    return bad_field("logprobs", "false", "true when top_logprobs is given");
  }
  Prompt prompt;
  prompt.ids = TRY(chat_prompt_ids(body, model));
  TRY(check_prompt(prompt.ids, "messages", true, model));
  request.prompts.push_back(std::move(prompt));
  return request;
}

}  // namespace headrace
