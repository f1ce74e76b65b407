#include "server/api/openai_prompt.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "server/api/json.h"

namespace headrace {
namespace {

constexpr size_t kMaxTotalChoices = 1024;
// What the prompts of one request may have in all: contexts, or this many tokens if that is more.
constexpr int64_t kMaxPromptContexts = 16;
constexpr int64_t kFreePromptTokens = 65'536;

constexpr std::string_view kNeeded =
    "a string, a list of strings, a list of token ids or a list of such lists";

Error with_param(Error error, std::string_view param) {
  if (error.param.empty()) error.param = param;
  return error;
}

// The prompts of one body: they share a bound.
class PromptReader {
 public:
  PromptReader(const ServingModel& model, EncodeLimits limits, bool add_special, bool needs_room)
      : model_(model),
        limits_(std::move(limits)),
        add_special_(add_special),
        needs_room_(needs_room),
        max_total_(std::max(kMaxPromptContexts * model.max_context, kFreePromptTokens)) {
    limits_.max_tokens = model.max_context;
  }

  Status add(const boost::json::value& item) {
    Prompt prompt;
    if (item.is_string()) {
      prompt.echo_text.assign(item.get_string().data(), item.get_string().size());
      auto ids = model_.text.encode_prompt(prompt.echo_text, add_special_, limits_);
      if (!ids.ok()) return with_param(std::move(ids).error(), "prompt");
      prompt.ids = std::move(ids).value();
    } else {
      prompt.ids =
          TRY(parse_ids(item.get_array(), "prompt", model_.info.vocab_size, model_.max_context));
    }
    TRY(check_prompt(prompt.ids, "prompt", needs_room_, model_));
    total_ += static_cast<int64_t>(prompt.ids.size());
    if (total_ > max_total_) {
      Error error = bad_field("prompt",
                              fmt::format("a list that has {} tokens after {} of its prompts",
                                          total_, prompts_.size() + 1),
                              fmt::format("one of at most {} tokens in all", max_total_));
      error.hint = "send the prompts in several requests";
      return error;
    }
    prompts_.push_back(std::move(prompt));
    return {};
  }

  std::vector<Prompt> take() { return std::move(prompts_); }

 private:
  const ServingModel& model_;
  EncodeLimits limits_;
  const bool add_special_;
  const bool needs_room_;
  const int64_t max_total_;
  int64_t total_ = 0;
  std::vector<Prompt> prompts_;
};

Status read_list(const boost::json::array& array, int num_choices, PromptReader& reader) {
  if (array.size() * static_cast<size_t>(num_choices) > kMaxTotalChoices) {
    return bad_field("prompt", fmt::format("a list of {} with n {}", array.size(), num_choices),
                     fmt::format("such that there are at most {} choices", kMaxTotalChoices));
  }
  for (const boost::json::value& item : array) {
    if (item.kind() != array[0].kind() || (!item.is_string() && !item.is_array())) {
      return bad_field("prompt", fmt::format("a list that holds {}", show_value(item)), kNeeded);
    }
    TRY(reader.add(item));
  }
  return {};
}

// What `echo` repeats: the text as it was sent, or what the ids mean.
Status set_echo(const ServingModel& model, GenerationRequest& request) {
  for (Prompt& prompt : request.prompts) {
    if (!request.echo) {
      prompt.echo_text = {};
    } else if (prompt.echo_text.empty()) {
      prompt.echo_text =
          valid_utf8(TRY(model.text.tokenizer->decode(prompt.ids, request.skip_special)));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<int32_t>> parse_ids(const boost::json::array& array, std::string_view param,
                                       int64_t vocab_size, int64_t max_ids) {
  if (static_cast<int64_t>(array.size()) > max_ids) {
    return with_param(too_many_tokens(static_cast<int64_t>(array.size()), max_ids), param);
  }
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

Status parse_prompts(const Fields& fields, const ServingModel& model, const EncodeLimits& limits,
                     GenerationRequest& request) {
  const bool add_special = TRY(fields.boolean("add_special_tokens")).value_or(true);
  const boost::json::value* value = fields.find("prompt");
  if (value == nullptr) return bad_field("prompt", "missing", kNeeded);
  const bool is_list = value->is_array();
  if (!is_list && !value->is_string()) return bad_field("prompt", show_value(*value), kNeeded);
  if (is_list && value->get_array().empty()) return bad_field("prompt", "an empty list", kNeeded);
  PromptReader reader(model, limits, add_special, request.prototype.max_tokens > 0);
  if (is_list && !value->get_array()[0].is_number()) {
    TRY(read_list(value->get_array(), request.num_choices, reader));
  } else {
    TRY(reader.add(*value));
  }
  request.prompts = reader.take();
  return set_echo(model, request);
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

}  // namespace headrace
