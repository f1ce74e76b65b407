#include "server/api/sampling_fields.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <random>

#include "engine/loop_watch.h"
#include "engine/token_history.h"
#include "server/api/json.h"
#include "server/api/prompt.h"

namespace headrace {
namespace {

using enum SamplingField;

constexpr size_t kMaxStops = 32;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxStopIds = 128;
constexpr size_t kMaxBiases = 1024;
constexpr double kMaxBias = 100;
constexpr float kNever = -1e6f;  // the lowest that the engine takes: no logit makes up for it

constexpr size_t kMaxBreakers = 32;
constexpr size_t kMaxBreakerBytes = 64;
constexpr size_t kMaxBadWords = 128;
constexpr size_t kMaxBadWordBytes = 256;
// Where dry_sequence_breakers is not given, as in llama.cpp.
constexpr std::string_view kUsualBreakers[] = {"\n", ":", "\"", "*"};

struct NumberRow {
  SamplingField field;
  double low, high;
  float& (*member)(SamplingParams&);
};

using Params = SamplingParams;
constexpr NumberRow kNumbers[] = {
    {kTemperature, 0, 100, [](Params& p) -> float& { return p.temperature; }},
    {kTopP, 0, 1, [](Params& p) -> float& { return p.top_p; }},
    {kMinP, 0, 1, [](Params& p) -> float& { return p.min_p; }},
    {kRepetitionPenalty, 0.01, 100, [](Params& p) -> float& { return p.repetition_penalty; }},
    {kPresencePenalty, -2, 2, [](Params& p) -> float& { return p.presence_penalty; }},
    {kFrequencyPenalty, -2, 2, [](Params& p) -> float& { return p.frequency_penalty; }},
    {kTypicalP, 0, 1, [](Params& p) -> float& { return p.typical_p; }},
    {kTopNSigma, -1, 100, [](Params& p) -> float& { return p.top_n_sigma; }},
    {kXtcProbability, 0, 1, [](Params& p) -> float& { return p.xtc_probability; }},
    {kXtcThreshold, 0, 1, [](Params& p) -> float& { return p.xtc_threshold; }},
    {kMirostatTau, 0, 100, [](Params& p) -> float& { return p.mirostat_tau; }},
    {kMirostatEta, 0, 1, [](Params& p) -> float& { return p.mirostat_eta; }},
    {kDryMultiplier, 0, 100, [](Params& p) -> float& { return p.dry.multiplier; }},
    {kDryBase, 0, 100, [](Params& p) -> float& { return p.dry.base; }},
};

uint64_t random_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

Status read_seed(const Fields& fields, std::string_view name, bool below_zero_is_random,
                 uint64_t& seed) {
  const boost::json::value* value = fields.find(name);
  if (value == nullptr) return {};
  const auto number = whole_number(*value);
  if (value->is_uint64()) {
    seed = value->get_uint64();
  } else if (!number) {
    return bad_field(fields.path(name), show_value(*value), "a whole number");
  } else if (*number >= 0 || !below_zero_is_random) {
    seed = static_cast<uint64_t>(*number);
  }
  return {};
}

using Biases = std::vector<std::pair<int32_t, float>>;

Status check_count(std::string_view path, size_t count, std::string_view shown) {
  if (count <= kMaxBiases) return {};
  return bad_field(path, shown, fmt::format("at most {}", kMaxBiases));
}

Result<float> bias_of(std::string_view path, std::string_view id, const boost::json::value& value,
                      bool takes_false) {
  if (takes_false && value.is_bool() && !value.get_bool()) {
    return kNever;
  }
  const double bias = value.is_number() ? value.to_number<double>() : NAN;
  if (bias >= -kMaxBias && bias <= kMaxBias) return static_cast<float>(bias);
  return bad_field(fmt::format("{}.{}", path, id), show_value(value), "a number from -100 to 100");
}

Status read_bias_object(const std::string& path, const boost::json::object& object,
                        int64_t vocab_size, Biases& biases) {
  TRY(check_count(path, object.size(), fmt::format("an object of {} members", object.size())));
  for (const auto& [key, value] : object) {
    const std::string_view text(key.data(), key.size());
    int64_t id = -1;
    const bool digits = !text.empty() && text.size() <= 9 &&
                        text.find_first_not_of("0123456789") == std::string_view::npos;
    if (digits) id = std::stoll(std::string(text));
    if (id < 0 || id >= vocab_size) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} has the key {}, but its keys must be token ids from 0 to "
                               "{}",
                               path, show_value(boost::json::string(text)), vocab_size - 1),
                   {},
                   path};
    }
    biases.emplace_back(static_cast<int32_t>(id), TRY(bias_of(path, text, value, false)));
  }
  return {};
}

Status read_bias_pairs(const std::string& path, const boost::json::array& pairs, int64_t vocab_size,
                       Biases& biases) {
  TRY(check_count(path, pairs.size(), fmt::format("a list of {}", pairs.size())));
  for (const boost::json::value& pair : pairs) {
    const boost::json::array* parts = pair.if_array();
    if (parts == nullptr || parts->size() != 2) {
      return bad_field(path, fmt::format("a list that holds {}", show_value(pair)),
                       "a list of pairs, each a token id and a number");
    }
    const auto id = whole_number((*parts)[0]);
    if (!id || *id < 0 || *id >= vocab_size) {
      return bad_field(path, fmt::format("a list with the token {}", show_value((*parts)[0])),
                       fmt::format("of token ids from 0 to {}", vocab_size - 1));
    }
    biases.emplace_back(static_cast<int32_t>(*id),
                        TRY(bias_of(path, std::to_string(*id), (*parts)[1], true)));
  }
  return {};
}

Status read_bias(const Fields& fields, std::string_view name, bool takes_pairs, int64_t vocab_size,
                 Biases& biases) {
  const boost::json::value* value = fields.find(name);
  if (value == nullptr) return {};
  biases.clear();
  if (takes_pairs && value->is_array()) {
    return read_bias_pairs(fields.path(name), value->get_array(), vocab_size, biases);
  }
  const boost::json::object* object = TRY(fields.object(name));
  return read_bias_object(fields.path(name), *object, vocab_size, biases);
}

Status read_stop(const Fields& fields, std::string_view name, std::vector<std::string>& stops) {
  const boost::json::value* value = fields.find(name);
  if (value == nullptr) return {};
  stops.clear();
  const auto add = [&](const boost::json::value& item) -> Status {
    if (!item.is_string() || item.get_string().empty() ||
        item.get_string().size() > kMaxStopBytes) {
      return bad_field(fields.path(name), item.is_array() ? "a list in a list" : show_value(item),
                       fmt::format("strings of 1 to {} bytes", kMaxStopBytes));
    }
    stops.emplace_back(item.get_string().data(), item.get_string().size());
    return {};
  };
  if (!value->is_array()) return add(*value);
  if (value->get_array().size() > kMaxStops) {
    return bad_field(fields.path(name), show_value(*value),
                     fmt::format("at most {} strings", kMaxStops));
  }
  for (const boost::json::value& item : value->get_array()) TRY(add(item));
  return {};
}

Status read_stop_ids(const Fields& fields, std::string_view name, int64_t vocab_size,
                     std::vector<int32_t>& ids) {
  const boost::json::array* array = TRY(fields.array(name));
  if (array == nullptr) return {};
  if (array->size() > kMaxStopIds) {
    return bad_field(fields.path(name), fmt::format("a list of {}", array->size()),
                     fmt::format("at most {} ids", kMaxStopIds));
  }
  ids = TRY(parse_ids(*array, fields.path(name), vocab_size, kMaxStopIds));
  return {};
}

Status read_max_tokens(const Fields& fields, std::string_view name, bool takes_all,
                       const ServingModel& model, GenerationRequest& request) {
  const auto most = TRY(fields.integer(name, takes_all ? INT32_MIN : 0, INT32_MAX));
  if (!most) return {};
  request.has_max_tokens = *most >= 0;
  request.prototype.max_tokens =
      static_cast<int32_t>(*most >= 0 ? *most : std::min<int64_t>(model.max_context, INT32_MAX));
  return {};
}

Status read_number(const Fields& fields, const SamplingName& row, SamplingParams& sampling) {
  const auto* number_row =
      std::find_if(std::begin(kNumbers), std::end(kNumbers),
                   [&](const NumberRow& each) { return each.field == row.field; });
  CHECK(number_row != std::end(kNumbers), "{} is no number", row.name);
  const auto number = TRY(fields.number(row.name, number_row->low, number_row->high));
  if (!number) return {};
  number_row->member(sampling) = static_cast<float>(*number);
  if (row.field == kTopP && sampling.top_p <= 0) {
    return bad_field(fields.path(row.name), "0", "a number above 0 and at most 1");
  }
  // What other programs send for "off".
  if (sampling.typical_p <= 0) sampling.typical_p = 1;
  sampling.top_n_sigma = std::max(sampling.top_n_sigma, 0.0f);
  return {};
}

// At most max_texts strings of 1 to max_bytes bytes.
Result<std::vector<std::string>> read_texts(const Fields& fields, std::string_view name,
                                            size_t max_texts, size_t max_bytes) {
  std::vector<std::string> texts;
  const boost::json::array* list = TRY(fields.array(name));
  if (list == nullptr) return texts;
  if (list->size() > max_texts) {
    return bad_field(fields.path(name), fmt::format("a list of {}", list->size()),
                     fmt::format("at most {} strings", max_texts));
  }
  for (const boost::json::value& item : *list) {
    const size_t size = item.is_string() ? item.get_string().size() : 0;
    if (size == 0 || size > max_bytes) {
      return bad_field(fields.path(name), fmt::format("a list that holds {}", show_value(item)),
                       fmt::format("strings of 1 to {} bytes", max_bytes));
    }
    texts.emplace_back(item.get_string().data(), size);
  }
  return texts;
}

// A text that no token holds whole ends with its last token.
Status add_breaker(const std::string& text, const TextBundle& bundle, std::vector<int32_t>* ids) {
  std::vector<int32_t> found = bundle.token_finder->find(*bundle.tokenizer, text);
  if (found.empty()) found = TRY(bundle.tokenizer->encode(text, /*add_special=*/false));
  if (found.empty()) return {};
  const bool is_held = bundle.tokenizer->token_bytes(found.back(), false).find(text) != text.npos;
  ids->insert(ids->end(), is_held ? found.begin() : found.end() - 1, found.end());
  return {};
}

Status read_breakers(const Fields& fields, std::string_view name, const TextBundle& bundle,
                     DryParams& dry) {
  if (dry.base < 1) dry.multiplier = 0;
  dry.base = std::max(dry.base, 1.0f);
  std::vector<std::string> texts = TRY(read_texts(fields, name, kMaxBreakers, kMaxBreakerBytes));
  if (fields.find(name) == nullptr) texts = {std::begin(kUsualBreakers), std::end(kUsualBreakers)};
  if (dry.multiplier == 0) return {};
  auto ids = std::make_shared<std::vector<int32_t>>();
  for (const std::string& text : texts) TRY(add_breaker(text, bundle, ids.get()));
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  dry.breakers = std::move(ids);
  return {};
}

// Each as it is spelled at the beginning of an answer, and after a blank.
Status read_bad_words(const Fields& fields, std::string_view name, const TextBundle& bundle,
                      std::vector<std::vector<int32_t>>& words) {
  const auto texts = TRY(read_texts(fields, name, kMaxBadWords, kMaxBadWordBytes));
  words.clear();
  for (const std::string& text : texts) {
    for (const std::string& form : {text, " " + text}) {
      std::vector<int32_t> ids = TRY(bundle.tokenizer->encode(form, /*add_special=*/false));
      const bool is_new = std::find(words.begin(), words.end(), ids) == words.end();
      if (!ids.empty() && is_new) words.push_back(std::move(ids));
    }
  }
  return {};
}

Status read_repetition_stop(const Fields& fields, std::string_view name, RepetitionStop& stop) {
  constexpr std::string_view kMembers[] = {"max_pattern_size", "min_pattern_size", "min_count"};
  const boost::json::object* object = TRY(fields.object(name));
  if (object == nullptr) return {};
  for (const auto& [key, value] : *object) {
    const std::string_view member(key.data(), key.size());
    if (std::find(std::begin(kMembers), std::end(kMembers), member) != std::end(kMembers)) continue;
    return bad_field(fields.path(name),
                     fmt::format("an object with {}", show_value(boost::json::string(member))),
                     "an object of max_pattern_size, min_pattern_size and min_count");
  }
  const Fields members(*object, fields.path(name) + ".");
  const int64_t most = TRY(members.integer(kMembers[0], 0, kMaxLoopBlock)).value_or(0);
  const int64_t least =
      TRY(members.integer(kMembers[1], 0, std::max<int64_t>(most, 0))).value_or(0);
  const auto count = TRY(members.integer(kMembers[2], most > 0 ? 2 : 0, INT32_MAX));
  if (most > 0 && !count) {
    return bad_field(members.path(kMembers[2]), "missing", "a whole number of at least 2");
  }
  stop.max_block = static_cast<int32_t>(most);
  stop.min_block = static_cast<int32_t>(std::max<int64_t>(least, 1));
  stop.min_count = static_cast<int32_t>(std::max<int64_t>(count.value_or(0), 2));
  return {};
}

Status read_mirostat(const Fields& fields, std::string_view name, SamplingParams& sampling) {
  const auto mode = TRY(fields.integer(name, 0, 2));
  if (mode == 1) return bad_field(fields.path(name), "1", "0 or 2");
  if (mode) sampling.mirostat = *mode == 2;
  return {};
}

Status read_dry_lengths(const Fields& fields, const SamplingName& row, DryParams& dry) {
  if (row.field == kDryAllowedLength) {
    const auto length = TRY(fields.integer(row.name, 1, kMaxDryAllowed));
    if (length) dry.allowed_length = static_cast<int32_t>(*length);
    return {};
  }
  const auto window = TRY(fields.integer(row.name, -1, INT32_MAX));
  if (window) dry.window = static_cast<int32_t>(*window);
  if (window == 0) dry.multiplier = 0;
  return {};
}

Status read_min_tokens(const Fields& fields, std::string_view name, const ServingModel& model,
                       Request& request) {
  const int64_t most = std::min<int64_t>(request.max_tokens, model.max_context);
  const auto least = TRY(fields.integer(name, 0, most));
  if (least) request.min_tokens = static_cast<int32_t>(*least);
  return {};
}

Status read_row(const Fields& fields, const SamplingName& row, const ServingModel& model,
                GenerationRequest& request) {
  Request& prototype = request.prototype;
  switch (row.field) {
    case kTopK: {
      const auto top_k = TRY(fields.integer(row.name, -1, INT32_MAX));
      if (top_k) prototype.sampling.top_k = static_cast<int32_t>(*top_k);
      return {};
    }
    case kSeed:
    case kSeedOrRandom:
      return read_seed(fields, row.name, row.field == kSeedOrRandom, prototype.sampling.seed);
    case kLogitBias:
    case kLogitBiasPairs:
      return read_bias(fields, row.name, row.field == kLogitBiasPairs, model.info.vocab_size,
                       prototype.sampling.logit_bias);
    case kMaxTokens:
    case kMaxTokensOrAll:
      return read_max_tokens(fields, row.name, row.field == kMaxTokensOrAll, model, request);
    case kMinTokens:
      return read_min_tokens(fields, row.name, model, prototype);
    case kIgnoreEos:
      prototype.ignore_eos = TRY(fields.boolean(row.name)).value_or(prototype.ignore_eos);
      return {};
    case kStopIds:
      return read_stop_ids(fields, row.name, model.info.vocab_size, prototype.stop_ids);
    case kStop:
      return read_stop(fields, row.name, request.stop);
    case kMirostat:
      return read_mirostat(fields, row.name, prototype.sampling);
    case kDryAllowedLength:
    case kDryWindow:
      return read_dry_lengths(fields, row, prototype.sampling.dry);
    case kDryBreakers:
      return read_breakers(fields, row.name, model.text, prototype.sampling.dry);
    case kBadWords:
      return read_bad_words(fields, row.name, model.text, prototype.sampling.bad_words);
    case kRepetitionStop:
      return read_repetition_stop(fields, row.name, prototype.repetition_stop);
    default:
      return read_number(fields, row, prototype.sampling);
  }
}

}  // namespace

SamplingParams fresh_sampling(const ServingModel& model) {
  SamplingParams sampling = default_sampling(model.text.sampling);
  sampling.seed = random_seed();
  return sampling;
}

Status read_sampling(const Fields& fields, std::span<const SamplingName> names,
                     const ServingModel& model, GenerationRequest& request) {
  for (const SamplingName& row : names) TRY(read_row(fields, row, model, request));
  return {};
}

Status read_schedule(const Fields& fields, Request& request) {
  const auto priority = TRY(fields.integer("priority", -kMaxPriority, kMaxPriority));
  if (priority) request.priority = static_cast<int32_t>(*priority);
  request.max_queue_us = 1000 * TRY(fields.integer("max_queue_ms", 1, kMaxWaitMs)).value_or(0);
  request.deadline_us = 1000 * TRY(fields.integer("deadline_ms", 1, kMaxWaitMs)).value_or(0);
  return {};
}

Status read_logprobs(const Fields& fields, Request& request) {
  const bool asked = TRY(fields.boolean("logprobs")).value_or(false);
  const auto top = TRY(fields.integer("top_logprobs", 0, kMaxLogprobs));
  if (asked) request.num_logprobs = static_cast<int>(top.value_or(0));
  if (top.value_or(0) > 0 && !asked) {
    return bad_field("logprobs", "false", "true when top_logprobs is given");
  }
  return {};
}

Status read_penalty_window(const Fields& fields, SamplingParams& sampling) {
  constexpr int64_t kUsualWindow = 64;
  const auto window = TRY(fields.integer("repeat_last_n", -1, INT32_MAX));
  if (window == 0) sampling.repetition_penalty = 1;
  const bool is_whole = !window || *window <= 0 || *window == kUsualWindow;
  if (is_whole || sampling.repetition_penalty == 1) return {};
  Error error = bad_field(fields.path("repeat_last_n"), fmt::format("{}", *window),
                          "-1 or 0 where there is a repeat_penalty");
  error.code = ErrorCode::kUnsupported;
  error.hint = "penalties look at the whole text";
  return error;
}

}  // namespace headrace
