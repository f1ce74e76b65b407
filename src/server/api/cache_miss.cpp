#include "server/api/cache_miss.h"

#include "backend/backend.h"

namespace headrace {
namespace {

// Whole blocks before a prompt's last token, which is computed in any case.
int64_t findable_tokens(const Prompt& prompt) {
  const int64_t before_last = std::ssize(prompt.ids) - 1;
  return before_last / kBlockTokens * kBlockTokens;
}

}  // namespace

std::string_view cache_miss(const GenerationRequest& request, const Usage& usage) {
  int64_t findable = 0;
  for (const Prompt& prompt : request.prompts) findable += findable_tokens(prompt);
  if (request.prototype.num_prompt_logprobs) return "scored";
  if (usage.cached_tokens > 0) return usage.cached_tokens >= findable ? "" : "differs";
  return findable == 0 ? "short" : "new";
}

}  // namespace headrace
