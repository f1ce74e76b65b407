#include "server/api/prompt.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "server/api/fields.h"
#include "server/api/json.h"

namespace headrace {
namespace {

// What the prompts of one request may have in all: contexts, or this many tokens if that is more.
constexpr int64_t kMaxPromptContexts = 16;
constexpr int64_t kFreePromptTokens = 65'536;
constexpr size_t kMaxSaltBytes = 256;

// The prompts of one request: they share a bound.
class PromptReader {
 public:
  PromptReader(PromptSource source, const ServingModel& model, EncodeLimits limits,
               const GenerationRequest& request)
      : source_(std::move(source)),
        model_(model),
        limits_(std::move(limits)),
        echo_(request.echo),
        skip_special_(request.skip_special),
        needs_room_(request.prototype.max_tokens > 0),
        max_total_(std::max(kMaxPromptContexts * model.max_context, kFreePromptTokens)) {
    limits_.max_tokens = source_.truncate_to > 0 ? max_total_ : model.max_context;
  }

  // Ids of the text that the answers may repeat: as many as an answer can have.
  Result<std::vector<int32_t>> read_prediction() const {
    if (source_.prediction.empty()) return std::vector<int32_t>();
    auto ids = model_.text.encode_prompt(source_.prediction, false, limits_);
    if (!ids.ok()) return named(std::move(ids).error(), "prediction");
    return ids;
  }

  Result<std::vector<Prompt>> read() {
    std::vector<Prompt> prompts;
    for (PromptItem& item : source_.items) {
      const std::string& param = source_.param_of(prompts.size());
      auto ids = std::visit([this](auto& each) { return ids_of(each); }, item);
      if (!ids.ok()) return named(std::move(ids).error(), param);
      Prompt prompt{std::move(ids).value(), {}, false};
      truncate(prompt.ids);
      TRY(check_prompt(prompt.ids, param, needs_room_, model_));
      TRY(count(prompt, prompts.size() + 1));
      if (std::holds_alternative<ChatPrompt>(item)) {
        prompt.opens_reasoning = model_.text.opens_reasoning(prompt.ids);
      }
      if (echo_) prompt.echo_text = TRY(echo_of(item, prompt));
      prompts.push_back(std::move(prompt));
    }
    return prompts;
  }

 private:
  Result<PromptIds> ids_of(PromptText text) const {
    return model_.text.encode_prompt(text, source_.add_special, limits_);
  }
  Result<PromptIds> ids_of(PromptIds& ids) const { return std::move(ids); }
  Result<PromptIds> ids_of(ChatPrompt& conversation) const {
    return encode_conversation(std::move(conversation), model_, limits_);
  }

  Result<PromptIds> ids_of(const InfillPrompt& prompt) const {
    CHECK(model_.text.infill.has_value(), "the dialect asks before it makes such a prompt");
    return encode_infill(*model_.text.infill, prompt.before, prompt.after, *model_.text.tokenizer,
                         limits_);
  }

  // The end token of models that pool the last row stays the last.
  void truncate(PromptIds& ids) const {
    if (source_.truncate_to == 0 || std::ssize(ids) <= source_.truncate_to) return;
    const int32_t last = ids.back();
    ids.resize(static_cast<size_t>(source_.truncate_to));
    if (model_.text.tokenizer->is_special(last)) ids.back() = last;
  }

  // A conversation calls its messages so, whatever the dialect does.
  static Error named(Error error, const std::string& param) {
    if (error.param.empty() || error.param == "messages") error.param = param;
    return error;
  }

  Status count(const Prompt& prompt, size_t num_prompts) {
    total_ += static_cast<int64_t>(prompt.ids.size());
    if (total_ <= max_total_) return {};
    Error error = bad_field(
        source_.param,
        fmt::format("a list that has {} tokens after {} of its prompts", total_, num_prompts),
        fmt::format("one of at most {} tokens in all", max_total_));
    error.hint = "send the prompts in several requests";
    return error;
  }

  // What `echo` repeats: the text as it was sent, or what the ids mean.
  Result<std::string> echo_of(const PromptItem& item, const Prompt& prompt) const {
    if (const auto* text = std::get_if<PromptText>(&item); text != nullptr && !text->empty()) {
      return std::string(*text);
    }
    return valid_utf8(TRY(model_.text.tokenizer->decode(prompt.ids, skip_special_)));
  }

  PromptSource source_;
  const ServingModel& model_;
  EncodeLimits limits_;
  const bool echo_, skip_special_, needs_room_;
  const int64_t max_total_;
  int64_t total_ = 0;
};

struct MemoryNeed {
  size_t held = 0;    // prompts and, as their number is known, the log-probs of their tokens
  size_t answer = 0;  // the log-probs of an answer that was asked for in full
};

MemoryNeed memory_need(const GenerationRequest& request, int64_t max_context) {
  const Request& asked = request.prototype;
  const auto n = static_cast<size_t>(request.num_choices);
  const bool keeps_scores = asked.num_logprobs && request.has_max_tokens && !request.stream;
  MemoryNeed need;
  // Each choice has them, and an index of them.
  need.held += 6 * sizeof(int32_t) * asked.predicted_ids.size() * request.total_choices();
  for (const Prompt& prompt : request.prompts) {
    const size_t num_tokens = prompt.ids.size();
    need.held += prompt.ids.capacity() * sizeof(int32_t) + prompt.echo_text.capacity();
    if (asked.num_prompt_logprobs) {
      need.held += num_tokens * n * score_bytes(*asked.num_prompt_logprobs);
    }
    const int64_t room = max_context - static_cast<int64_t>(num_tokens);
    const auto longest = static_cast<size_t>(std::min<int64_t>(asked.max_tokens, room));
    if (keeps_scores) need.answer += longest * n * score_bytes(*asked.num_logprobs);
  }
  return need;
}

// What the request holds from now on. An answer that can never fit is refused before any work.
Status take_memory(Caller& caller, int64_t max_context, GenerationRequest& request) {
  const MemoryNeed need = memory_need(request, max_context);
  const size_t total = need.held + need.answer;
  ByteBudget::Lease memory = std::move(caller.memory);
  if (total > memory.limit()) {
    Error error = bad_field(
        "logprobs", fmt::format("for up to {} MiB of scores", (total >> 20) + 1),
        fmt::format("for at most {} MiB, all that this server lends", memory.limit() >> 20));
    error.hint = "ask for fewer prompts, choices, tokens or alternatives at once";
    return error;
  }
  if (!memory.resize(need.held)) {
    return Error{ErrorCode::kExhausted,
                 fmt::format("this request needs {} MiB for prompts and scores, and other requests "
                             "hold what this server lends",
                             (need.held >> 20) + 1),
                 "try again later",
                 {}};
  }
  request.memory = std::move(memory);
  return {};
}

}  // namespace

Status read_prompts(PromptSource source, const ServingModel& model, Caller caller,
                    GenerationRequest& request) {
  request.prototype.cache_domain = cache_domain(caller, request.cache_salt);
  request.prototype.client_id = caller.request_id;
  request.prototype.client = caller.client;
  request.prototype.arrived_us = caller.arrived_us;
  PromptReader reader(std::move(source), model, EncodeLimits{.stopped = caller.left}, request);
  request.prototype.predicted_ids = TRY(reader.read_prediction());
  request.prompts = TRY(reader.read());
  return take_memory(caller, model.max_context, request);
}

Status check_prompt(std::span<const int32_t> ids, std::string_view param, bool needs_room,
                    const ServingModel& model) {
  if (ids.empty()) return bad_field(param, "empty", "at least one token");
  const int64_t num_tokens = static_cast<int64_t>(ids.size());
  if (num_tokens > model.max_context || (needs_room && num_tokens == model.max_context)) {
    Error error = too_many_tokens(num_tokens, model.max_context, TokenCount::kExact);
    error.param = param;
    return error;
  }
  return {};
}

Result<std::vector<int32_t>> parse_ids(const boost::json::array& array, std::string_view param,
                                       int64_t vocab_size, int64_t max_ids) {
  if (static_cast<int64_t>(array.size()) > max_ids) {
    Error error = too_many_tokens(static_cast<int64_t>(array.size()), max_ids);
    error.param = param;
    return error;
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

Result<std::string> parse_salt(const Fields& fields) {
  const auto salt = TRY(fields.text("cache_salt"));
  if (!salt) return std::string();
  if (salt->empty() || salt->size() > kMaxSaltBytes) {
    return bad_field("cache_salt", fmt::format("a string of {} bytes", salt->size()),
                     fmt::format("a string of 1 to {} bytes", kMaxSaltBytes));
  }
  return std::string(*salt);
}

Result<PromptIds> infill_ids(std::string_view before, std::string_view after,
                             std::string_view param, const ServingModel& model, Request& request) {
  const auto& marks = model.text.infill;
  if (!marks) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} is given, but this model was not trained to fill in text before one",
                    param),
        "leave it out, or use a model for code that has fill-in-the-middle tokens",
        std::string(param)};
  }
  request.stop_ids.insert(request.stop_ids.end(), marks->ends.begin(), marks->ends.end());
  return encode_infill(*marks, before, after, *model.text.tokenizer,
                       EncodeLimits{.max_tokens = model.max_context});
}

std::string cache_domain(const Caller& caller, std::string_view salt) {
  std::string domain = caller.has_key ? fmt::format("{:016x}", caller.client) : std::string();
  if (!caller.cache_group.empty()) domain = "group:" + caller.cache_group;
  return salt.empty() ? domain : fmt::format("{}/{}", domain, salt);
}

}  // namespace headrace
