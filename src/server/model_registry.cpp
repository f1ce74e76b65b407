#include "server/model_registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "server/api/asked_model.h"
#include "server/api/fields.h"
#include "server/api/json.h"

namespace headrace {
namespace {

Error closing() {
  return make_error(ErrorCode::kUnavailable,
                    "the server is shutting down and takes no new requests");
}

// What clients are told of a load that failed: nothing of paths and files.
Error load_error(const std::string& name, const Error& error) {
  if (error.code == ErrorCode::kExhausted) {
    return Error{ErrorCode::kExhausted, fmt::format("{} cannot be loaded: {}", name, error.message),
                 error.hint, "model"};
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} could not be loaded; the server's log says why", name),
               {},
               "model"};
}

}  // namespace

std::string_view name_of(ModelState state) {
  constexpr std::string_view kNames[] = {"asleep", "loading", "awake"};
  return kNames[static_cast<size_t>(state)];
}

ModelRegistry::ModelRegistry(ServedModels models) : options_(models.options) {
  for (ModelPtr& model : models.always) {
    Entry& entry = entries_.emplace_back();
    entry.names = model->names;
    entry.model = std::move(model);
    entry.stays = true;
  }
  for (ModelSource& source : models.on_demand) {
    Entry& entry = entries_.emplace_back();
    entry.names = source.aliases;
    entry.names.insert(entry.names.begin(), source.name);
    entry.keep_alive = options_.keep_alive;
    entry.adapters = std::move(source.adapters);
    entry.source = std::move(source);
  }
  if (!models.on_demand.empty()) thread_ = std::thread([this] { run(); });
}

ModelRegistry::~ModelRegistry() {
  close();
  join();
  // A session that has just ended on a thread of its engine must not be the last to let go of it.
  for (const Entry& entry : entries_) {
    while (!entry.stays && entry.is_in_use()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

ModelRegistry::Entry* ModelRegistry::entry_of(std::string_view name) {
  if (name.empty()) return &entries_.front();
  Entry* const found = entry_named(name);
  const std::string_view untagged = without_latest(name);
  return found != nullptr || untagged.empty() ? found : entry_named(untagged);
}

ModelRegistry::Entry* ModelRegistry::entry_named(std::string_view name) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end();
  });
  if (found != entries_.end()) return &*found;
  const auto adapted = std::find_if(entries_.begin(), entries_.end(), [name](const Entry& entry) {
    return has_adapter(entry, name);
  });
  return adapted == entries_.end() ? nullptr : &*adapted;
}

bool ModelRegistry::has_adapter(const Entry& entry, std::string_view name) {
  if (entry.model != nullptr) {
    return entry.model->adapters.find(name) != nullptr || entry.model->adapters.is_lost(name);
  }
  return std::any_of(entry.adapters.begin(), entry.adapters.end(),
                     [name](const auto& recipe) { return recipe.name == name; });
}

std::string ModelRegistry::owner_of_adapter(std::string_view name) const {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (has_adapter(entry, name)) return entry.names.front();
  }
  return {};
}

Error ModelRegistry::not_found(std::string_view name) const {
  std::vector<std::string_view> known;
  for (const Entry& entry : entries_) known.push_back(entry.names.front());
  return Error{ErrorCode::kNotFound,
               fmt::format("the model {} does not exist here, this server has '{}'",
                           show_value(boost::json::string(name)), fmt::join(known, "', '")),
               {},
               "model"};
}

void ModelRegistry::acquire(std::string_view name, UseModel use, HasLeft has_left) {
  std::unique_lock lock(mutex_);
  Entry* const entry = entry_of(name);
  Result<ModelPtr> now = ModelPtr();
  if (entry == nullptr) {
    now = not_found(name);
  } else if (entry->model != nullptr && !is_in_the_way(*entry)) {
    entry->last_used = Clock::now();
    now = entry->model;
  } else if (closed_) {
    now = closing();
  } else if (num_waiting_ >= options_.max_waiting) {
    now = make_error(ErrorCode::kExhausted, "{} requests wait for models to be loaded already",
                     num_waiting_);
  } else {
    entry->waiting.push_back({std::move(use), std::move(has_left), Clock::now()});
    entry->wanted = true;
    ++num_waiting_;
    changed_.notify_all();
    return;
  }
  lock.unlock();
  use(std::move(now));
}

Result<ModelPtr> ModelRegistry::find(std::string_view name) {
  std::lock_guard lock(mutex_);
  Entry* const entry = entry_of(name);
  if (entry == nullptr) return not_found(name);
  if (entry->model != nullptr && !is_in_the_way(*entry)) {
    entry->last_used = Clock::now();
    return entry->model;
  }
  if (closed_) return closing();
  entry->wanted = true;
  changed_.notify_all();
  const std::string_view state =
      entry->model == nullptr ? "is being loaded" : "makes room for another model";
  return Error{ErrorCode::kUnavailable, fmt::format("{} {}", entry->names.front(), state),
               "ask again in a moment", "model"};
}

Result<ModelPtr> ModelRegistry::find_for(const boost::json::object& body) {
  return find(TRY(Fields(body).text("model")).value_or(""));
}

std::vector<ModelPtr> ModelRegistry::all() const {
  std::lock_guard lock(mutex_);
  std::vector<ModelPtr> models;
  for (const Entry& entry : entries_) {
    if (entry.model != nullptr) models.push_back(entry.model);
  }
  return models;
}

std::optional<std::chrono::milliseconds> ModelRegistry::Entry::sleeps_in() const {
  if (stays || model == nullptr || keep_alive.count() < 0) return std::nullopt;
  const auto idle = is_in_use() ? Clock::duration::zero() : Clock::now() - last_used;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(keep_alive - idle);
  return std::max(left, std::chrono::milliseconds::zero());
}

std::vector<ModelStatus> ModelRegistry::status() const {
  std::lock_guard lock(mutex_);
  std::vector<ModelStatus> all;
  for (const Entry& entry : entries_) {
    ModelStatus& status = all.emplace_back();
    status.names = entry.names;
    status.sleeps_in = entry.sleeps_in();  // before one more holds the model
    status.model = entry.model;
    status.progress = entry.progress;
    status.num_waiting = entry.waiting.size();
    status.stays = entry.stays;
    status.failed = entry.failed;
    status.num_bytes = entry.source.num_bytes;
    if (entry.model != nullptr) {
      status.state = ModelState::kAwake;
      status.num_bytes = static_cast<size_t>(entry.model->info.weight_bytes);
    }
    if (entry.loading) status.state = ModelState::kLoading;
    for (const auto& recipe : entry.adapters) status.adapters.push_back(recipe.name);
  }
  return all;
}

Status ModelRegistry::sleep(std::string_view name) {
  return keep_alive(name, std::chrono::milliseconds(0));
}

Status ModelRegistry::keep_alive(std::string_view name, std::chrono::milliseconds time) {
  std::lock_guard lock(mutex_);
  Entry* const entry = entry_of(name);
  if (entry == nullptr) return not_found(name);
  if (entry->stays) {
    return make_error(ErrorCode::kInvalidArgument, "{} was named at the start and stays awake",
                      entry->names.front());
  }
  entry->keep_alive = time;
  changed_.notify_all();
  return {};
}

void ModelRegistry::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  for (Entry& entry : entries_) answer(entry, closing(), lock);
  changed_.notify_all();
}

void ModelRegistry::join() {
  if (thread_.joinable()) thread_.join();
}

void ModelRegistry::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    expire_waiting(lock);
    serve_wanted(lock);
    let_through(lock);
    free_idle(lock);
    changed_.wait_for(lock, options_.tick);
  }
}

// Where the first in line finds no room yet, what comes free is kept for it.
void ModelRegistry::serve_wanted(std::unique_lock<std::mutex>& lock) {
  for (Entry* const entry : asleep_in_order()) {
    if (closed_) return;
    if (entry->wanted) load(*entry, lock);
    if (first_in_line() == entry) return;
  }
}

std::vector<ModelRegistry::Entry*> ModelRegistry::asleep_in_order() {
  std::vector<Entry*> asleep;
  for (Entry& entry : entries_) {
    if (entry.wanted && entry.model == nullptr) asleep.push_back(&entry);
  }
  const auto rank = [](const Entry* entry) { return std::pair(entry->waits_since(), entry); };
  std::sort(asleep.begin(), asleep.end(),
            [&](const Entry* one, const Entry* other) { return rank(one) < rank(other); });
  return asleep;
}

// Whose turn it is: of the models that are not there the one that is waited for longest, if that is
// long. Null: nobody's.
const ModelRegistry::Entry* ModelRegistry::first_in_line() const {
  const Entry* first = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.model != nullptr || entry.waiting.empty()) continue;
    if (first == nullptr || entry.waits_since() < first->waits_since()) first = &entry;
  }
  const bool is_long =
      first != nullptr && Clock::now() - first->waits_since() >= options_.turn_after;
  return is_long ? first : nullptr;
}

// Must it sleep for the first in line? Those go that were loaded first, no more than have to.
bool ModelRegistry::is_in_the_way(const Entry& entry) const {
  if (entry.stays || options_.memory_bytes == 0) return false;
  const Entry* const first = first_in_line();
  return first != nullptr &&
         first->source.num_bytes + used_bytes(entry.loaded_at) > options_.memory_bytes;
}

// Who waited for another's turn that has come, or has been given up.
void ModelRegistry::let_through(std::unique_lock<std::mutex>& lock) {
  for (Entry& entry : entries_) {
    if (!entry.wanted || entry.model == nullptr || is_in_the_way(entry)) continue;
    entry.last_used = Clock::now();
    answer(entry, ModelPtr(entry.model), lock);
  }
}

// Stays wanted where others in use leave no room for it.
void ModelRegistry::load(Entry& entry, std::unique_lock<std::mutex>& lock) {
  const std::string& name = entry.names.front();
  const size_t needed = entry.source.num_bytes;
  if (options_.memory_bytes > 0 && needed > options_.memory_bytes) {
    Error error = make_error(ErrorCode::kInvalidArgument,
                             "{} has {} MiB of weights, but the limit for models is {} MiB", name,
                             needed >> 20, options_.memory_bytes >> 20);
    error.param = "model";
    return answer(entry, error, lock);
  }
  if (!make_room(entry, lock) || closed_) return;
  entry.loading = true;
  entry.progress = 0;
  entry.keep_alive = options_.keep_alive;  // before: who lets go of it while it loads is heard
  let_through(lock);
  lock.unlock();
  LOG(kInfo, "loading {}", name);
  Result<ModelPtr> loaded = make(entry);
  lock.lock();
  // What the system has no room for may find it where idle models were.
  while (!loaded.ok() && loaded.error().code == ErrorCode::kExhausted && free_longest_idle(lock)) {
    lock.unlock();
    loaded = make(entry);
    lock.lock();
  }
  entry.loading = false;
  entry.failed = !loaded.ok();
  entry.loaded_at = entry.last_used = Clock::now();
  if (loaded.ok()) {
    entry.model = *loaded;
    entry.adapters.clear();
    LOG(kInfo, "{} is loaded", name);
    return answer(entry, loaded, lock);
  }
  LOG(kError, "{} cannot be loaded: {}", name, loaded.error().to_string());
  answer(entry, load_error(name, loaded.error()), lock);
}

// With the adapters that it had when it fell asleep. Without the lock.
Result<ModelPtr> ModelRegistry::make(Entry& entry) {
  ModelPtr model = TRY(entry.source.load([this, &entry](double done) {
    std::lock_guard guard(mutex_);
    entry.progress = done;
  }));
  model->adapters.restore(entry.adapters);
  return model;
}

// Under the limit, beside what is awake.
bool ModelRegistry::make_room(const Entry& entry, std::unique_lock<std::mutex>& lock) {
  if (options_.memory_bytes == 0) return true;
  while (used_bytes() + entry.source.num_bytes > options_.memory_bytes) {
    if (!free_longest_idle(lock)) return false;
  }
  return true;
}

size_t ModelRegistry::used_bytes(Clock::time_point loaded_from) const {
  size_t bytes = 0;
  for (const Entry& entry : entries_) {
    const bool counts = entry.model != nullptr && entry.loaded_at >= loaded_from;
    if (!entry.stays && counts) bytes += entry.source.num_bytes;
  }
  return bytes;
}

// Only this has the pointer of an idle model: copies are made of it with the lock held.
bool ModelRegistry::free_longest_idle(std::unique_lock<std::mutex>& lock) {
  Entry* longest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.stays || entry.model == nullptr || entry.is_in_use()) continue;
    if (longest == nullptr || entry.last_used < longest->last_used) longest = &entry;
  }
  if (longest == nullptr) return false;
  put_to_sleep(*longest, lock);
  return true;
}

void ModelRegistry::put_to_sleep(Entry& entry, std::unique_lock<std::mutex>& lock) {
  ModelPtr model = std::exchange(entry.model, nullptr);
  entry.adapters = model->adapters.recipes();
  lock.unlock();
  model.reset();
  LOG(kInfo, "{} sleeps", entry.names.front());
  lock.lock();
}

void ModelRegistry::answer(Entry& entry, const Result<ModelPtr>& result,
                           std::unique_lock<std::mutex>& lock) {
  entry.wanted = false;
  const std::vector<Waiter> waiting = std::exchange(entry.waiting, {});
  num_waiting_ -= waiting.size();
  if (waiting.empty()) return;
  lock.unlock();
  for (const Waiter& waiter : waiting) waiter.use(result);
  lock.lock();
}

void ModelRegistry::expire_waiting(std::unique_lock<std::mutex>& lock) {
  const Clock::time_point oldest = Clock::now() - options_.load_patience;
  const auto waits_on = [&](const Waiter& waiter) {
    return waiter.since > oldest && (waiter.has_left == nullptr || !waiter.has_left());
  };
  std::vector<Waiter> expired;
  for (Entry& entry : entries_) {
    const size_t num_before = expired.size();
    for (Waiter& waiter : std::exchange(entry.waiting, {})) {
      (waits_on(waiter) ? entry.waiting : expired).push_back(std::move(waiter));
    }
    if (expired.size() > num_before) entry.wanted = !entry.waiting.empty();
  }
  num_waiting_ -= expired.size();
  if (expired.empty()) return;
  lock.unlock();
  for (const Waiter& waiter : expired) {
    waiter.use(make_error(ErrorCode::kUnavailable,
                          "the model could not be loaded in time: others in use take the memory"));
  }
  lock.lock();
}

void ModelRegistry::free_idle(std::unique_lock<std::mutex>& lock) {
  for (Entry& entry : entries_) {
    const auto left = entry.sleeps_in();
    if (!left) continue;
    if (entry.is_in_use()) {
      entry.last_used = Clock::now();
    } else if (left->count() == 0) {
      put_to_sleep(entry, lock);
    }
  }
}

}  // namespace headrace
