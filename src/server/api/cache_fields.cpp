#include "server/api/cache_fields.h"

#include <algorithm>
#include <iterator>

#include "server/api/json.h"
#include "server/api/prompt.h"

namespace headrace {
namespace {

using Priority = Retention::Priority;

constexpr size_t kMaxKeyBytes = 1024;
constexpr int64_t kMaxKeptSeconds = 86'400;
constexpr int64_t kDefaultKeptSeconds = 300;

struct NamedRetention {
  std::string_view name;
  Priority priority;
  int64_t seconds;  // 0: as cache_seconds says
};
constexpr NamedRetention kPriorities[] = {
    {"low", Priority::kLow, 0}, {"normal", Priority::kNormal, 0}, {"high", Priority::kHigh, 0}};
constexpr NamedRetention kRetentions[] = {{"in_memory", Priority::kNormal, 0},
                                          {"in-memory", Priority::kNormal, 0},
                                          {"24h", Priority::kHigh, kMaxKeptSeconds}};

Result<std::string> read_key(const Fields& fields, std::string_view name) {
  const auto key = TRY(fields.text(name));
  if (key && key->size() > kMaxKeyBytes) {
    return bad_field(name, fmt::format("a string of {} bytes", key->size()),
                     fmt::format("at most {} bytes", kMaxKeyBytes));
  }
  return std::string(key.value_or(""));
}

// Null: not given.
Result<const NamedRetention*> read_named(const Fields& fields, std::string_view field,
                                         std::span<const NamedRetention> rows,
                                         std::string_view needed) {
  const auto name = TRY(fields.text(field));
  if (!name) return nullptr;
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const NamedRetention& each) { return each.name == *name; });
  if (row == rows.end()) return bad_field(field, show_value(*fields.find(field)), needed);
  return &*row;
}

}  // namespace

Status read_cache_fields(const Fields& fields, GenerationRequest& request) {
  request.cache_salt = TRY(parse_salt(fields));
  Request& prototype = request.prototype;
  prototype.session = TRY(read_key(fields, "prompt_cache_key"));
  prototype.parent_session = TRY(read_key(fields, "parent_cache_key"));
  const NamedRetention* named =
      TRY(read_named(fields, "prompt_cache_retention", kRetentions, "\"in_memory\" or \"24h\""));
  const NamedRetention* priority =
      TRY(read_named(fields, "cache_priority", kPriorities, "\"low\", \"normal\" or \"high\""));
  const auto seconds = TRY(fields.integer("cache_seconds", 1, kMaxKeptSeconds));
  if (priority != nullptr) named = priority;
  if (seconds && (named == nullptr || named->priority != Priority::kHigh)) {
    return bad_field("cache_seconds", fmt::format("{}", *seconds),
                     "left out, unless cache_priority is \"high\"");
  }
  if (named == nullptr) return {};
  const int64_t otherwise = named->seconds > 0 ? named->seconds : kDefaultKeptSeconds;
  prototype.retention = {named->priority, seconds.value_or(otherwise) * 1'000'000};
  return {};
}

}  // namespace headrace
