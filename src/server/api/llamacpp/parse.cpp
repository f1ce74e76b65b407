#include <algorithm>
#include <boost/json/array.hpp>

#include "server/api/asked_model.h"
#include "server/api/json.h"
#include "server/api/llamacpp/llamacpp.h"
#include "server/api/prompt.h"
#include "server/api/sampling_fields.h"

namespace headrace {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr size_t kMaxExtra = 256;
constexpr std::string_view kPromptForms =
    "a string, a list of token ids, or a list of strings and ids";

// Of "samplers", in the order in which they are done; what is not named is not done.
struct SamplerRow {
  std::string_view name;
  char letter;                                    // in the short form, a string
  bool (*is_on)(const SamplingParams& sampling);  // does it change anything?
  void (*leave_out)(SamplingParams& sampling);
};
constexpr SamplerRow kSamplers[] = {
    {"penalties", 'e',
     [](const SamplingParams& of) {
       return of.repetition_penalty != 1 || of.presence_penalty != 0 || of.frequency_penalty != 0;
     },
     [](SamplingParams& to) {
       to.repetition_penalty = 1;
       to.presence_penalty = to.frequency_penalty = 0;
     }},
    {"dry", 'd', [](const SamplingParams& of) { return of.dry.multiplier > 0; },
     [](SamplingParams& to) { to.dry.multiplier = 0; }},
    {"top_n_sigma", 's', [](const SamplingParams& of) { return of.top_n_sigma > 0; },
     [](SamplingParams& to) { to.top_n_sigma = 0; }},
    {"top_k", 'k', [](const SamplingParams& of) { return of.top_k > 0; },
     [](SamplingParams& to) { to.top_k = 0; }},
    {"typ_p", 'y', [](const SamplingParams& of) { return of.typical_p < 1; },
     [](SamplingParams& to) { to.typical_p = 1; }},
    {"top_p", 'p', [](const SamplingParams& of) { return of.top_p < 1; },
     [](SamplingParams& to) { to.top_p = 1; }},
    {"min_p", 'm', [](const SamplingParams& of) { return of.min_p > 0; },
     [](SamplingParams& to) { to.min_p = 0; }},
    {"xtc", 'x', [](const SamplingParams& of) { return of.xtc_probability > 0; },
     [](SamplingParams& to) { to.xtc_probability = 0; }},
    {"infill", 'i', [](const SamplingParams&) { return true; }, [](SamplingParams&) {}},
};
constexpr size_t kInfillPlace = std::size(kSamplers) - 1;
// They come anywhere: the temperature is applied first, and the others' fields are refused.
struct AnywhereRow {
  std::string_view name;
  char letter;
};
constexpr std::string_view kTemperatureStep = "temperature";
constexpr AnywhereRow kAnywhere[] = {{kTemperatureStep, 't'}, {"tfs_z", 'f'}, {"adaptive_p", 'a'}};
constexpr std::string_view kSamplersNeeded =
    "a list of temperature and of these, in this order: penalties, dry, top_n_sigma, top_k, typ_p, "
    "top_p, min_p, xtc, infill; or a string of their letters, t and edskypmxi";
constexpr size_t kMaxPaths = 64;

constexpr SamplingName kSampling[] = {
    {"temperature", SamplingField::kTemperature},
    {"top_p", SamplingField::kTopP},
    {"top_k", SamplingField::kTopK},
    {"min_p", SamplingField::kMinP},
    {"repeat_penalty", SamplingField::kRepetitionPenalty},
    {"presence_penalty", SamplingField::kPresencePenalty},
    {"frequency_penalty", SamplingField::kFrequencyPenalty},
    {"seed", SamplingField::kSeedOrRandom},
    {"logit_bias", SamplingField::kLogitBiasPairs},
    {"max_tokens", SamplingField::kMaxTokensOrAll},
    {"n_predict", SamplingField::kMaxTokensOrAll},
    {"ignore_eos", SamplingField::kIgnoreEos},
    {"stop", SamplingField::kStop},
};

// Texts and ids, one after the other; only a text at the beginning gets the model's own token.
Result<PromptIds> mixed_ids(const array& list, const ServingModel& model) {
  PromptIds ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const EncodeLimits limits{.max_tokens = model.max_context};
    if (list[i].is_string()) {
      const PromptIds more =
          TRY(model.text.encode_prompt(text_view(list[i].get_string()), i == 0, limits));
      ids.insert(ids.end(), more.begin(), more.end());
      // Each fits; so must they together, before there are very many.
      if (std::ssize(ids) > model.max_context) break;
      continue;
    }
    if (!list[i].is_number()) return bad_field("prompt", show_value(list[i]), kPromptForms);
    const PromptIds one = TRY(parse_ids(array{list[i]}, "prompt", model.info.vocab_size, 1));
    ids.push_back(one.front());
  }
  return ids;
}

Result<PromptItem> parse_prompt(const value* prompt, const ServingModel& model) {
  if (prompt == nullptr) return bad_field("prompt", "missing", kPromptForms);
  if (prompt->is_string()) return PromptItem(text_view(prompt->get_string()));
  if (!prompt->is_array() || prompt->get_array().empty()) {
    return bad_field("prompt", show_value(*prompt), kPromptForms);
  }
  const array& list = prompt->get_array();
  // llama.cpp's servers answer each of them.
  if (list.size() > 1 &&
      std::all_of(list.begin(), list.end(), [](const value& each) { return each.is_string(); })) {
    return bad_field("prompt", fmt::format("a list of {} strings, a prompt each", list.size()),
                     "one prompt: send a request for each");
  }
  if (static_cast<int64_t>(list.size()) > model.max_context) {
    Error error = too_many_tokens(static_cast<int64_t>(list.size()), model.max_context);
    error.param = "prompt";
    return error;
  }
  return PromptItem(TRY(mixed_ids(list, model)));
}

Status parse_structure(const Fields& fields, Structure& structure) {
  const value* schema = fields.find("json_schema");
  const auto grammar = TRY(fields.text("grammar"));
  const bool has_grammar = grammar && !grammar->empty();
  if (schema != nullptr && has_grammar) {
    return bad_field("grammar", "given beside json_schema", "the only one of the two");
  }
  if (schema != nullptr) {
    structure = {Structure::Kind::kJsonSchema, to_text(*schema), "json_schema"};
  } else if (has_grammar) {
    structure = {Structure::Kind::kGrammar, std::string(*grammar), "grammar"};
  }
  return {};
}

Result<size_t> place_of_sampler(std::string_view name) {
  if (name == "typical_p") name = "typ_p";
  for (size_t i = 0; i < std::size(kSamplers); ++i) {
    if (name == kSamplers[i].name) return i;
  }
  return bad_field("samplers", show_value(value(name)), kSamplersNeeded);
}

Status use_infill(const ServingModel& model, SamplingParams& sampling) {
  if (sampling.top_k < 1 || sampling.top_k > kMaxInfillChoices) {
    return bad_field("samplers", fmt::format("infill with top_k {}", sampling.top_k),
                     fmt::format("infill behind top_k, of 1 to {}", kMaxInfillChoices));
  }
  sampling.infill = [&tokenizer = *model.text.tokenizer](int32_t id) {
    return tokenizer.token_bytes(id, /*skip_special=*/true);
  };
  return {};
}

Result<std::string_view> sampler_of_letter(char letter) {
  for (const SamplerRow& row : kSamplers) {
    if (letter == row.letter) return row.name;
  }
  for (const AnywhereRow& row : kAnywhere) {
    if (letter == row.letter) return row.name;
  }
  return bad_field("samplers", fmt::format("a string with '{}'", letter), kSamplersNeeded);
}

Result<std::vector<std::string_view>> sampler_names(const value& given) {
  std::vector<std::string_view> names;
  if (given.is_string()) {
    for (const char letter : text_view(given.get_string())) {
      names.push_back(TRY(sampler_of_letter(letter)));
    }
    return names;
  }
  if (!given.is_array()) return bad_field("samplers", show_value(given), kSamplersNeeded);
  for (const value& each : given.get_array()) {
    if (!each.is_string()) return bad_field("samplers", show_value(each), kSamplersNeeded);
    names.push_back(text_view(each.get_string()));
  }
  return names;
}

// The order is fixed: two that change something and stand in another are refused.
Status parse_samplers(const Fields& fields, const ServingModel& model, SamplingParams& sampling) {
  const value* given = fields.find("samplers");
  if (given == nullptr || sampling.mirostat) return {};
  bool is_done[std::size(kSamplers)] = {}, has_temperature = false;
  size_t first = 0;
  for (const std::string_view name : TRY(sampler_names(*given))) {
    has_temperature = has_temperature || name == kTemperatureStep;
    if (std::ranges::count(kAnywhere, name, &AnywhereRow::name) > 0) continue;
    const size_t place = TRY(place_of_sampler(name));
    is_done[place] = true;
    if (!kSamplers[place].is_on(sampling)) continue;
    if (place < first) return bad_field("samplers", show_value(value(name)), kSamplersNeeded);
    first = place;
  }
  for (size_t i = 0; i < std::size(kSamplers); ++i) {
    if (!is_done[i]) kSamplers[i].leave_out(sampling);
  }
  if (!has_temperature) sampling.temperature = 1;
  return is_done[kInfillPlace] ? use_infill(model, sampling) : Status();
}

// What ends an answer in an editor.
Status parse_lines(const Fields& fields, LineRules& lines) {
  constexpr int64_t kMaxIndent = 10'000;
  const auto indent = TRY(fields.integer("n_indent", 0, kMaxIndent));
  lines.indent = static_cast<int32_t>(indent.value_or(0));
  const auto most_ms = TRY(fields.integer("t_max_predict_ms", -1, kMaxWaitMs));
  lines.time = std::max<int64_t>(most_ms.value_or(0), 0) * 1000;
  return {};
}

Result<std::vector<std::string>> parse_paths(const Fields& fields) {
  const array* list = TRY(fields.array("response_fields"));
  std::vector<std::string> paths;
  if (list == nullptr) return paths;
  if (list->size() > kMaxPaths) {
    return bad_field("response_fields", fmt::format("a list of {}", list->size()),
                     fmt::format("at most {} texts", kMaxPaths));
  }
  for (const value& each : *list) {
    if (!each.is_string()) return bad_field("response_fields", show_value(each), "texts");
    paths.emplace_back(text_view(each.get_string()));
  }
  return paths;
}

Status parse_common(const Fields& fields, const ServingModel& model, GenerationRequest& request) {
  Request& prototype = request.prototype;
  prototype.sampling = fresh_sampling(model);
  prototype.max_tokens = static_cast<int32_t>(std::min<int64_t>(model.max_context, INT32_MAX));
  TRY(read_sampling(fields, kSampling, model, request));
  TRY(read_sampling(fields, kFurtherSamplingNames, model, request));
  TRY(read_penalty_window(fields, prototype.sampling));
  TRY(parse_samplers(fields, model, prototype.sampling));
  TRY(parse_lines(fields, request.lines));
  request.only_computes = prototype.max_tokens == 0;
  const auto num_probs = TRY(fields.integer("n_probs", 0, kMaxLogprobs));
  if (num_probs.value_or(0) > 0) prototype.num_logprobs = static_cast<int>(*num_probs);
  request.stream = TRY(fields.boolean("stream")).value_or(false);
  TRY(read_schedule(fields, prototype));
  return parse_structure(fields, request.form.structure);
}

// Other files, as text before the one that is filled in.
Result<std::string> parse_extra(const Fields& fields) {
  const array* list = TRY(fields.array("input_extra"));
  const size_t num_files = list == nullptr ? 0 : list->size();
  if (num_files > kMaxExtra) {
    return bad_field("input_extra", fmt::format("a list of {}", num_files),
                     fmt::format("at most {} files", kMaxExtra));
  }
  std::string text;
  for (size_t i = 0; i < num_files; ++i) {
    const std::string path = fmt::format("input_extra[{}]", i);
    if (!(*list)[i].is_object()) return bad_field(path, show_value((*list)[i]), "an object");
    const Fields file((*list)[i].get_object(), path + ".");
    const auto name = TRY(file.text("filename"));
    const auto content = TRY(file.text("text"));
    if (!content) return bad_field(path + ".text", "missing", "a string");
    text += fmt::format("{}\n{}\n\n", name.value_or("file"), *content);
  }
  return text;
}

// The other files, beginning and end between the model's marks, and how the answer begins.
Result<PromptIds> parse_infill(const Fields& fields, const ServingModel& model, Request& request) {
  const std::string_view before = TRY(fields.text("input_prefix")).value_or("");
  const std::string_view after = TRY(fields.text("input_suffix")).value_or("");
  PromptIds ids = TRY(infill_ids(before, after, "input_suffix", model, request));
  const EncodeLimits limits{.max_tokens = model.max_context};
  const PromptIds extra = TRY(model.text.encode_prompt(TRY(parse_extra(fields)), false, limits));
  const auto bos = model.text.tokenizer->bos_id();
  const bool has_bos = bos && !ids.empty() && ids.front() == *bos;
  ids.insert(ids.begin() + (has_bos ? 1 : 0), extra.begin(), extra.end());
  const std::string_view begun = TRY(fields.text("prompt")).value_or("");
  const PromptIds more = TRY(model.text.encode_prompt(begun, false, limits));
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

// But for the prompt, /completion and /infill are the same.
Result<ParsedRequest> parse_with(const object& body, const ServingModel& model, FieldPlace place) {
  ParsedRequest parsed;
  GenerationRequest& request = parsed.request;
  IgnoredFields ignored;
  LlamaAnswer answer;
  answer.model_name = TRY(asked_model(body, model));
  TRY(check_fields(body, place, "", ignored));
  const Fields fields(body);
  TRY(parse_common(fields, model, request));
  parsed.prompts.param = "prompt";
  if (place == kInInfill) {
    parsed.prompts.items.emplace_back(TRY(parse_infill(fields, model, request.prototype)));
  } else {
    parsed.prompts.items.push_back(TRY(parse_prompt(fields.find("prompt"), model)));
  }
  answer.num_top = request.prototype.num_logprobs.value_or(0);
  answer.paths = TRY(parse_paths(fields));
  answer.with_tokens = TRY(fields.boolean("return_tokens")).value_or(false);
  answer.settings = llama_settings(request);
  name_ignored(ignored, request.headers);
  parsed.renderer = make_llama_renderer(model, std::move(answer));
  return parsed;
}

}  // namespace

Result<ParsedRequest> parse_llama_completion(const object& body, const ServingModel& model) {
  return parse_with(body, model, kInLlamaCompletion);
}

Result<ParsedRequest> parse_llama_infill(const object& body, const ServingModel& model) {
  return parse_with(body, model, kInInfill);
}

}  // namespace headrace
