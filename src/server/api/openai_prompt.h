// Prompts of a completion body: read, tokenised and checked. Inside openai*.cpp and the routes of
// the tokenizer only.
#pragma once

#include "server/api/fields.h"
#include "server/api/openai.h"

namespace headrace {

// Token ids of the vocabulary; at most max_ids. Errors name `param`.
Result<std::vector<int32_t>> parse_ids(const boost::json::array& array, std::string_view param,
                                       int64_t vocab_size, int64_t max_ids);

// Fills request.prompts from the four forms of "prompt"; the rest of the request is read already.
// Each prompt is bounded by the context, and all together by kMaxPromptContexts contexts: counting
// ends as soon as it is sure that they do not fit.
Status parse_prompts(const Fields& fields, const ServingModel& model, const EncodeLimits& limits,
                     GenerationRequest& request);

// kInvalidArgument if the prompt is empty or leaves no room in the context.
Status check_prompt(std::span<const int32_t> ids, std::string_view param, bool needs_room,
                    const ServingModel& model);

}  // namespace headrace
