#include "server/api/cache_miss.h"

#include "backend/backend.h"

namespace headrace {
namespace {

// Whole blocks before a prompt's last token, which is computed in any case.
int64_t findable_tokens(const Prompt& prompt) {
  const int64_t before_last = std::ssize(prompt.ids) - 1;
  return before_last / kBlockTokens * kBlockTokens;
}

// Are results of tokens before the last one part of the answer?
bool needs_all_tokens(const Request& request) {
  const Pooling pooling = request.pooling;
  return request.num_prompt_logprobs || pooling == Pooling::kMean || pooling == Pooling::kFirst;
}

}  // namespace

std::string_view cache_miss(const GenerationRequest& request, const Usage& usage) {
  int64_t findable = 0;
  for (const Prompt& prompt : request.prompts) findable += findable_tokens(prompt);
  if (needs_all_tokens(request.prototype)) return "scored";
  if (usage.cached_tokens > 0) return usage.cached_tokens >= findable ? "" : "differs";
  return findable == 0 ? "short" : "new";
}

}  // namespace headrace
