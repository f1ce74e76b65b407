#include "server/api/cache_miss.h"

#include "backend/backend.h"

namespace headrace {
namespace {

// Whole blocks before a prompt's last token, which is computed in any case; where it is scored, all
// but the last token of these, whose row scores the next.
int64_t findable_tokens(const Prompt& prompt, bool is_scored) {
  const int64_t before_last = std::ssize(prompt.ids) - 1;
  const int64_t in_blocks = before_last / kBlockTokens * kBlockTokens;
  return in_blocks > 0 && is_scored ? in_blocks - 1 : in_blocks;
}

// Are results of tokens before the last one part of the answer?
bool needs_all_tokens(const Request& request) {
  const Pooling pooling = request.pooling;
  return request.num_prompt_logprobs || pooling == Pooling::kMean || pooling == Pooling::kFirst;
}

std::string_view name_of(CacheMiss::Reason reason) {
  constexpr std::string_view kNames[] = {"", "evicted", "edited", "adapter", "rope"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace

std::string_view cache_miss(const GenerationRequest& request, const Usage& usage) {
  int64_t findable = 0;
  const bool is_scored = request.prototype.num_prompt_logprobs.has_value();
  for (const Prompt& prompt : request.prompts) findable += findable_tokens(prompt, is_scored);
  if (usage.miss.reason != CacheMiss::Reason::kNone) return name_of(usage.miss.reason);
  if (needs_all_tokens(request.prototype) && usage.cached_tokens == 0) return "scored";
  if (usage.cached_tokens > 0) return usage.cached_tokens >= findable ? "" : "differs";
  return findable == 0 ? "short" : "new";
}

void write_cache_miss(JsonWriter& json, const CacheMiss& miss) {
  if (miss.reason == CacheMiss::Reason::kNone) return;
  json.key("cache_miss").open_object().text("reason", name_of(miss.reason));
  json.integer("offset", miss.offset);
  if (miss.reason == CacheMiss::Reason::kEdited) {
    json.integer("was_token", miss.was).integer("is_token", miss.is);
  }
  json.close_object();
}

}  // namespace headrace
