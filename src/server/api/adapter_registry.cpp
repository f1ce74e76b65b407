#include "server/api/adapter_registry.h"

#include <algorithm>

#include "base/log.h"
#include "server/api/wall_clock.h"

namespace headrace {
namespace {

bool is_good_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxAdapterNameBytes &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '"' || c == '\\';
         });
}

}  // namespace

Status AdapterRegistry::check(const std::string& name, bool replace) const {
  if (make_ == nullptr) {
    return make_error(ErrorCode::kUnsupported, "the model that is served takes no adapters");
  }
  if (!is_good_name(name)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the name of an adapter must have 1 to {} bytes and no control characters, "
                      "quotes and backslashes",
                      kMaxAdapterNameBytes);
  }
  const std::lock_guard lock(mutex_);
  const bool is_there = entries_.contains(name);
  if (is_there && !replace) {
    Error error =
        make_error(ErrorCode::kInvalidArgument, "the adapter '{}' has already been loaded", name);
    error.hint = "set load_inplace to true to replace it";
    return error;
  }
  if (is_there || entries_.size() < kMaxAdapters) return {};
  return make_error(ErrorCode::kExhausted,
                    "{} adapters are loaded, and there is no room for more: unload one",
                    kMaxAdapters);
}

Status AdapterRegistry::load(const std::string& name, const std::string& source, bool replace,
                             const Read& read) {
  const std::unique_lock loading(loading_, std::try_to_lock);
  if (!loading.owns_lock()) {
    return make_error(ErrorCode::kUnavailable, "another adapter is being loaded");
  }
  TRY(check(name, replace));
  std::shared_ptr<const Adapter> adapter;
  {
    const AdapterFolder files = TRY(read());
    adapter = TRY(make_({name, files.config, files.bytes()}));
  }
  LOG(kInfo, "adapter '{}': rank {}, {} KiB, for '{}'", name, adapter->rank,
      adapter->packed->num_bytes() >> 10, adapter->base_model);
  Entry entry{name, source, std::move(adapter), unix_seconds()};
  const std::lock_guard lock(mutex_);
  std::swap(entries_[name], entry);  // what was there goes when the lock has gone
  return {};
}

Status AdapterRegistry::unload(std::string_view name) {
  std::shared_ptr<const Adapter> gone;  // goes when the lock has gone
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return make_error(ErrorCode::kNotFound, "the adapter '{}' cannot be found", name);
  }
  gone = std::move(found->second.adapter);
  entries_.erase(found);
  return {};
}

std::shared_ptr<const Adapter> AdapterRegistry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.adapter;
}

std::vector<AdapterRegistry::Entry> AdapterRegistry::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [name, entry] : entries_) entries.push_back(entry);
  return entries;
}

std::vector<std::string> AdapterRegistry::in_use() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.adapter.use_count() > 1) names.push_back(name);
  }
  return names;
}

}  // namespace headrace
