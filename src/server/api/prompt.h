// prompt: what a request gives the model to read, from any dialect to token ids.
//
// A dialect names texts, token ids or a conversation; templates, tokenising, bounds and memory are
// the same for all. This is the work of a request: call it on a worker thread.
#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/byte_budget.h"
#include "base/clock.h"
#include "server/api/conversation.h"
#include "server/api/fields.h"
#include "server/api/generation.h"
#include "server/api/serving_model.h"

namespace headrace {

// Who asks.
struct Caller {
  std::string request_id;         // x-request-id
  uint64_t client = 0;            // Request::client
  bool has_key = false;           // then `client` is a domain of the prefix cache too, or
  std::string cache_group = {};   // several share this one
  TimeUs arrived_us = 0;          // Request::arrived_us
  std::function<bool()> left;     // nobody waits for the answer any more; may be empty
  ByteBudget::Lease memory = {};  // what the request holds; the session's afterwards
};

using PromptText = std::string_view;  // of the body: it outlives the source
using PromptIds = std::vector<int32_t>;

// What is to be filled in stands between two texts. Of the body, as PromptText.
struct InfillPrompt {
  std::string_view before, after;
};

using PromptItem = std::variant<PromptText, PromptIds, ChatPrompt, InfillPrompt>;

struct PromptSource {
  std::string param;  // the field that errors name: "prompt", "messages"
  std::vector<PromptItem> items;
  // The first num_first items are of another field: "query" beside "documents".
  size_t num_first = 0;
  std::string first_param = {};
  bool add_special = true;      // of texts: the model's own tokens around them
  std::string prediction = {};  // of the answers; the field of that name
  // Longer prompts are cut to their first tokens, and a special one at the end; 0: refused.
  int64_t truncate_to = 0;

  const std::string& param_of(size_t item_idx) const {
    return item_idx < num_first ? first_param : param;
  }
};

// No list of prompts, each with n answers, has more answers than this.
inline constexpr size_t kMaxTotalChoices = 1024;

// Fills the request's prompts, who asks, and its cache domain; takes the caller's memory for the
// prompts and, as their number is known, for the log-probs of their tokens. Each prompt is bounded
// by the context, and all together by 16 contexts: counting ends as soon as it is sure that they do
// not fit. kExhausted: the caller's budget has no room; kUnavailable: the caller left.
Status read_prompts(PromptSource source, const ServingModel& model, Caller caller,
                    GenerationRequest& request);

// kInvalidArgument if the prompt is empty or leaves no room in the context.
Status check_prompt(std::span<const int32_t> ids, std::string_view param, bool needs_room,
                    const ServingModel& model);

// Token ids of the vocabulary; at most max_ids. Errors name `param`.
Result<std::vector<int32_t>> parse_ids(const boost::json::array& array, std::string_view param,
                                       int64_t vocab_size, int64_t max_ids);

// "cache_salt": 1 to 256 bytes; empty: none was given.
Result<std::string> parse_salt(const Fields& fields);

// Text to be filled in between two others, at once as ids; where the model was trained to end it,
// the request ends. kUnsupported naming `param` if it was not trained for that.
Result<PromptIds> infill_ids(std::string_view before, std::string_view after,
                             std::string_view param, const ServingModel& model, Request& request);

// Prefixes are shared only within a domain: of a key, or of keys of one group, if there are keys,
// and of a salt. Each has one spelling, so that no two domains read the same: a group's name holds
// no '/'.
std::string cache_domain(const Caller& caller, std::string_view salt);

}  // namespace headrace
