#include "engine/live_requests.h"

#include <algorithm>
#include <string_view>

namespace headrace {
namespace {

constexpr size_t kPerFree = 3;

// What is limited, and how it is told.
struct Limit {
  size_t RequestSize::* of;
  std::string_view name, free_name;
  size_t unit = 1;  // what it is told in
};
constexpr Limit kLimits[] = {
    {&RequestSize::places, "requests", "places"},
    {&RequestSize::prompt_tokens, "tokens of prompts", "tokens"},
    {&RequestSize::bytes, "MiB of requests", "MiB", size_t{1} << 20},
};

void add(const RequestSize& size, RequestSize& sum) {
  for (const Limit& limit : kLimits) sum.*limit.of += size.*limit.of;
}

void take(const RequestSize& size, RequestSize& sum) {
  for (const Limit& limit : kLimits) sum.*limit.of -= size.*limit.of;
}

std::string told(const Limit& limit, size_t amount) {
  return fmt::format("{} {}", amount / limit.unit, limit.name);
}

// A client may hold kPerFree times as much as is still free: one alone can fill most of it, and
// another still finds some.
Status check_limit(const Limit& limit, size_t size, size_t held, size_t held_by_client,
                   size_t most) {
  if (held == 0 && most > 0) return {};
  const size_t num_free = most - std::min(most, held);
  Error error;
  if (size > num_free) {
    error = make_error(
        ErrorCode::kExhausted, "{} are running or waiting, the limit{}", told(limit, held),
        size == 1
            ? std::string()
            : fmt::format(" is {}, and this request has {}", most / limit.unit, size / limit.unit));
  } else if (held_by_client > 0 && held_by_client + size > kPerFree * (num_free - size + 1)) {
    error = make_error(ErrorCode::kExhausted,
                       "{} of this client are running or waiting; the {} {} that are free are kept "
                       "for others",
                       told(limit, held_by_client), num_free / limit.unit, limit.free_name);
  } else {
    return {};
  }
  error.hint = "try again later";
  return error;
}

}  // namespace

RequestSize size_of(const Request& request) {
  RequestSize size;
  size.prompt_tokens = request.prompt_ids.size();
  size.bytes = sizeof(Request) + request.prompt_ids.size() * sizeof(int32_t) +
               request.stop_ids.size() * sizeof(int32_t) +
               request.sampling.logit_bias.size() * sizeof(std::pair<int32_t, float>);
  // Each beam has its tokens.
  size.bytes +=
      static_cast<size_t>(request.beams.width) * request.prompt_ids.size() * sizeof(int32_t);
  if (request.num_prompt_logprobs) {
    const size_t top = static_cast<size_t>(std::max(0, *request.num_prompt_logprobs));
    size.bytes += request.prompt_ids.size() *
                  (sizeof(std::optional<TokenLogprobs>) + top * sizeof(std::pair<int32_t, float>));
  }
  return size;
}

Result<RequestId> LiveRequests::accept(uint64_t client, const RequestSize& size) {
  if (closed_) return make_error(ErrorCode::kUnavailable, "the engine is shutting down");
  TRY(check_room(client, size));
  const RequestId id = next_id_++;
  live_.emplace(id, Live{client, size});
  add(size, held_);
  add(size, held_by_client_.try_emplace(client, RequestSize{.places = 0}).first->second);
  return id;
}

Status LiveRequests::check_room(uint64_t client, const RequestSize& size) const {
  const auto found = held_by_client_.find(client);
  const RequestSize by_client =
      found == held_by_client_.end() ? RequestSize{.places = 0} : found->second;
  for (const Limit& limit : kLimits) {
    TRY(check_limit(limit, size.*limit.of, held_.*limit.of, by_client.*limit.of, most_.*limit.of));
  }
  return {};
}

void LiveRequests::end(RequestId id, FinishReason reason) {
  const auto found = live_.find(id);
  if (found == live_.end() || std::exchange(found->second.ended, true)) return;
  endings_.push_back({id, reason});
}

void LiveRequests::end_all(FinishReason reason) {
  for (const auto& [id, live] : live_) end(id, reason);
}

void LiveRequests::remove(RequestId id) {
  const auto live = live_.find(id);
  CHECK(live != live_.end(), "request {} is not live", id);
  const Live& entry = live->second;
  const auto held = held_by_client_.find(entry.client);
  take(entry.size, held->second);
  take(entry.size, held_);
  if (held->second.places == 0) held_by_client_.erase(held);
  live_.erase(live);
}

}  // namespace headrace
