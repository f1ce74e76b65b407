#include <algorithm>
#include <boost/json/array.hpp>

#include "server/api/asked_model.h"
#include "server/api/cache_fields.h"
#include "server/api/json.h"
#include "server/api/openai/openai.h"
#include "server/api/sampling_fields.h"
#include "server/api/structure_fields.h"

namespace headrace {
namespace {

constexpr int kMaxChoices = 16;
constexpr int32_t kDefaultCompletionTokens = 16;

// What is read of a body before its answer is known.
struct ParsedBody {
  GenerationRequest request;
  PromptSource prompts;
  OpenAiAnswer answer;
  IgnoredFields ignored;
};

// In the order in which faults are named.
constexpr SamplingName kSamplingNames[] = {
    {"temperature", SamplingField::kTemperature},
    {"top_p", SamplingField::kTopP},
    {"min_p", SamplingField::kMinP},
    {"repetition_penalty", SamplingField::kRepetitionPenalty},
    {"presence_penalty", SamplingField::kPresencePenalty},
    {"frequency_penalty", SamplingField::kFrequencyPenalty},
    {"top_k", SamplingField::kTopK},
    {"seed", SamplingField::kSeed},
    {"logit_bias", SamplingField::kLogitBias},
    {"max_tokens", SamplingField::kMaxTokens},
    {"max_completion_tokens", SamplingField::kMaxTokens},
    {"min_tokens", SamplingField::kMinTokens},
    {"ignore_eos", SamplingField::kIgnoreEos},
    {"stop_token_ids", SamplingField::kStopIds},
    {"stop", SamplingField::kStop},
};

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

// `logprobs` of a completion: a number; false means none.
Status parse_completion_logprobs(const Fields& fields, GenerationRequest& request) {
  const boost::json::value* value = fields.find("logprobs");
  if (value == nullptr || (value->is_bool() && !value->get_bool())) return {};
  const auto count = TRY(fields.integer("logprobs", 0, kMaxLogprobs));
  request.prototype.num_logprobs = static_cast<int>(*count);
  if (request.echo) request.prototype.num_prompt_logprobs = static_cast<int>(*count);
  return {};
}

// Of the two names of the length, the one that counts.
std::string_view length_name(const Fields& fields) {
  return fields.find("max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
}

// What only a search obeys.
Status refuse_beam_fields(const Fields& fields) {
  const double penalty = TRY(fields.number("length_penalty", -10, 10)).value_or(1);
  if (penalty != 1 && penalty != 0) {
    return bad_field("length_penalty", fmt::format("{}", penalty),
                     "left out unless use_beam_search is true");
  }
  const boost::json::value* stopping = fields.find("early_stopping");
  if (stopping == nullptr || (stopping->is_bool() && !stopping->get_bool())) return {};
  return bad_field("early_stopping", show_value(*stopping),
                   "left out unless use_beam_search is true");
}

Result<EarlyStopping> read_early_stopping(const Fields& fields) {
  const boost::json::value* value = fields.find("early_stopping");
  if (value == nullptr) return EarlyStopping::kNo;
  if (value->is_bool()) return value->get_bool() ? EarlyStopping::kYes : EarlyStopping::kNo;
  if (value->is_string() && value->get_string() == "never") return EarlyStopping::kNever;
  return bad_field("early_stopping", show_value(*value), "true, false or \"never\"");
}

// num_beams: the answers that are made for each prompt, of which request.num_choices are returned.
Status parse_beams(const Fields& fields, int num_beams, GenerationRequest& request) {
  BeamParams& beams = request.prototype.beams;
  beams.width = num_beams;
  beams.num_returned = request.num_choices;
  beams.length_penalty =
      static_cast<float>(TRY(fields.number("length_penalty", -10, 10)).value_or(1));
  beams.early_stopping = TRY(read_early_stopping(fields));
  if (request.stream) {
    return bad_field("stream", "true", "false with use_beam_search, whose answers come at its end");
  }
  if (!request.stop.empty()) {
    return bad_field("stop", "given",
                     "left out with use_beam_search, which ends at stop_token_ids only");
  }
  return {};
}

// How many answers, out of how many, and how they are made.
Status parse_choices(const Fields& fields, GenerationRequest& request) {
  const auto n = static_cast<int>(TRY(fields.integer("n", 1, kMaxChoices)).value_or(1));
  const auto made = static_cast<int>(TRY(fields.integer("best_of", 1, kMaxChoices)).value_or(n));
  if (made < n) {
    return bad_field("best_of", fmt::format("{}", made), fmt::format("at least n, {}", n));
  }
  request.num_choices = n;
  if (TRY(fields.boolean("use_beam_search")).value_or(false)) {
    return parse_beams(fields, made, request);
  }
  TRY(refuse_beam_fields(fields));
  if (made == n) return {};
  if (request.stream) {
    return bad_field("best_of", fmt::format("{}", made),
                     fmt::format("equal to n, {}, in a stream", n));
  }
  request.num_choices = made;
  request.num_best = n;
  return {};
}

// Sampling, lengths, stops and streaming: what both kinds of body share.
Status parse_common(const Fields& fields, const ServingModel& model, ParsedBody& parsed) {
  GenerationRequest& request = parsed.request;
  request.prototype.sampling = fresh_sampling(model);
  TRY(read_sampling(fields, kSamplingNames, model, request));
  TRY(read_sampling(fields, kFurtherSamplingNames, model, request));
  TRY(parse_streaming(fields, parsed));
  request.include_stop = TRY(fields.boolean("include_stop_str_in_output")).value_or(false);
  request.skip_special = TRY(fields.boolean("skip_special_tokens")).value_or(true);
  TRY(parse_choices(fields, request));
  TRY(read_schedule(fields, request.prototype));
  return read_cache_fields(fields, request);
}

// The whole but for its prompts.
ParsedRequest finish(ParsedBody&& parsed, const ServingModel& model,
                     decltype(make_chat_renderer)& make_renderer) {
  name_ignored(parsed.ignored, parsed.request.headers);
  parsed.answer.num_top = parsed.request.prototype.num_logprobs;
  parsed.answer.num_choices = static_cast<size_t>(parsed.request.num_choices);
  return {std::move(parsed.request), std::move(parsed.prompts),
          make_renderer(model, std::move(parsed.answer))};
}

// What was filled in ends where the next text of the model's training would begin.
void add_infill_ends(const PromptSource& prompts, const ServingModel& model,
                     std::vector<int32_t>& stop_ids) {
  if (prompts.items.empty() || !std::holds_alternative<InfillPrompt>(prompts.items[0])) return;
  const std::vector<int32_t>& ends = model.text.infill->ends;
  stop_ids.insert(stop_ids.end(), ends.begin(), ends.end());
}

// {"type": "content", "content": "..."}, or a list of {"type": "text", "text": "..."}.
Result<std::string> read_prediction(const Fields& fields) {
  const boost::json::object* prediction = TRY(fields.object("prediction"));
  if (prediction == nullptr) return std::string();
  const Fields inner(*prediction, "prediction.");
  const auto type = TRY(inner.text("type"));
  if (type != "content") {
    return bad_field("prediction.type", type ? show_value(boost::json::string(*type)) : "missing",
                     "\"content\"");
  }
  const boost::json::value* content = inner.find("content");
  if (content == nullptr) return bad_field("prediction.content", "missing", "a text or a list");
  if (!content->is_array()) return std::string(TRY(inner.text("content")).value_or(""));
  std::string text;
  for (const boost::json::value& part : content->get_array()) {
    const boost::json::value* own =
        part.is_object() ? part.get_object().if_contains("text") : nullptr;
    if (own == nullptr || !own->is_string()) {
      return bad_field("prediction.content", show_value(part), "parts of type \"text\"");
    }
    text += text_view(own->get_string());
  }
  return text;
}

}  // namespace

Result<ParsedRequest> parse_completion(const boost::json::object& body, const ServingModel& model) {
  ParsedBody parsed;
  GenerationRequest& request = parsed.request;
  parsed.answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInCompletion, "", parsed.ignored));
  request.form.structure = TRY(parse_structure(body, parsed.ignored));
  const Fields fields(body);
  request.prototype.max_tokens = kDefaultCompletionTokens;
  request.has_max_tokens = true;
  TRY(parse_common(fields, model, parsed));
  request.echo = TRY(fields.boolean("echo")).value_or(false);
  TRY(parse_completion_logprobs(fields, request));
  if (request.prototype.max_tokens == 0 && !request.echo) {
    return bad_field(length_name(fields), "0", "at least 1, unless echo is true");
  }
  parsed.prompts = TRY(parse_prompts(fields, model, request.num_choices));
  add_infill_ends(parsed.prompts, model, request.prototype.stop_ids);
  return finish(std::move(parsed), model, make_completion_renderer);
}

Result<ParsedRequest> parse_chat(const boost::json::object& body, const ServingModel& model) {
  ParsedBody parsed;
  Request& prototype = parsed.request.prototype;
  parsed.answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, kInChat, "", parsed.ignored));
  parsed.request.form.structure = TRY(parse_structure(body, parsed.ignored));
  const Fields fields(body);
  prototype.max_tokens = static_cast<int32_t>(std::min<int64_t>(model.max_context, INT32_MAX));
  TRY(parse_common(fields, model, parsed));
  if (prototype.max_tokens == 0) return bad_field(length_name(fields), "0", "at least 1");
  TRY(read_logprobs(fields, prototype));
  parsed.prompts.param = "messages";
  parsed.prompts.prediction = TRY(read_prediction(fields));
  parsed.prompts.items.emplace_back(
      TRY(parse_conversation(body, model, parsed.request.form, parsed.ignored)));
  return finish(std::move(parsed), model, make_chat_renderer);
}

}  // namespace headrace
