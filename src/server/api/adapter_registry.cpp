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

// Letters and digits of the last part of a name.
std::string essence_of(std::string_view name) {
  while (name.ends_with('/')) name.remove_suffix(1);
  name.remove_prefix(std::min(name.rfind('/') + 1, name.size()));
  std::string essence;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') essence += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) essence += c;
  }
  return essence;
}

}  // namespace

std::string base_model_warning(std::string_view base_model, std::span<const std::string> names) {
  const std::string wanted = essence_of(base_model);
  const bool fits = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::string own = essence_of(name);
    return wanted.find(own) != wanted.npos || own.find(wanted) != own.npos;
  });
  if (fits) return {};
  return fmt::format("it was made for '{}', but the model here is '{}'", base_model, names.front());
}

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
  const auto found = entries_.find(name);
  const bool is_there = found != entries_.end();
  if (is_there && found->second.adapter != nullptr && !replace) {
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

Result<AdapterRegistry::Held> AdapterRegistry::make(const Recipe& recipe) const {
  const AdapterFolder files = TRY(recipe.read());
  Held adapter = TRY(make_({recipe.name, files.config, files.bytes()}));
  if (!recipe.digest.empty() && recipe.digest != adapter->digest) {
    return make_error(ErrorCode::kInvalidArgument, "its files have changed since it was loaded");
  }
  LOG(kInfo, "adapter '{}': rank {}, {} KiB, for '{}'", recipe.name, adapter->rank,
      adapter->packed->num_bytes() >> 10, adapter->base_model);
  return adapter;
}

// What was there goes when the lock has gone.
void AdapterRegistry::put(Loaded loaded) {
  const std::string name = loaded.recipe.name;
  const std::lock_guard lock(mutex_);
  std::swap(entries_[name], loaded);
}

Result<AdapterRegistry::Held> AdapterRegistry::load(const std::string& name,
                                                    const std::string& source, bool replace,
                                                    const Read& read) {
  const std::unique_lock loading(loading_, std::try_to_lock);
  if (!loading.owns_lock()) {
    return make_error(ErrorCode::kUnavailable, "another adapter is being loaded");
  }
  TRY(check(name, replace));
  Recipe recipe{name, source, read};
  Held adapter = TRY(make(recipe));
  recipe.digest = adapter->digest;
  put({std::move(recipe), adapter, unix_seconds()});
  return adapter;
}

void AdapterRegistry::restore(const std::vector<Recipe>& recipes) {
  const std::lock_guard loading(loading_);
  for (const Recipe& recipe : recipes) {
    Loaded loaded{recipe, nullptr, unix_seconds()};
    const Status good = check(recipe.name, true);
    Result<Held> made = good.ok() ? make(recipe) : Result<Held>(good.error());
    if (made.ok()) {
      loaded.recipe.digest = (*made)->digest;
      loaded.adapter = std::move(made).value();
    } else {
      LOG(kError, "adapter '{}' is lost: {}", recipe.name, made.error().to_string());
    }
    put(std::move(loaded));
  }
}

Status AdapterRegistry::unload(std::string_view name) {
  Held gone;  // goes when the lock has gone
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return make_error(ErrorCode::kNotFound, "the adapter '{}' cannot be found", name);
  }
  gone = std::move(found->second.adapter);
  entries_.erase(found);
  return {};
}

std::vector<AdapterRegistry::Recipe> AdapterRegistry::recipes() const {
  const std::lock_guard lock(mutex_);
  std::vector<Recipe> recipes;
  for (const auto& [name, loaded] : entries_) recipes.push_back(loaded.recipe);
  return recipes;
}

bool AdapterRegistry::is_lost(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found != entries_.end() && found->second.adapter == nullptr;
}

AdapterRegistry::Held AdapterRegistry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.adapter;
}

std::vector<AdapterRegistry::Entry> AdapterRegistry::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [name, loaded] : entries_) {
    if (loaded.adapter == nullptr) continue;
    entries.push_back({name, loaded.recipe.source, loaded.adapter, loaded.loaded_s});
  }
  return entries;
}

std::vector<std::string> AdapterRegistry::in_use() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, loaded] : entries_) {
    if (loaded.adapter.use_count() > 1) names.push_back(name);
  }
  return names;
}

}  // namespace headrace
