// ModelRegistry: the models of a server, by the names that requests call them.
//
// Some are there from the start and stay. The others are loaded when the first request asks for
// them, on a thread of the registry, one at a time; requests wait meanwhile, so many and so long as
// the options say. Who is not used for a while sleeps: it is taken out of memory, with its cache.
// Where a model does not fit beside the others, those that are idle sleep first, the longest unused
// before. A model in use is never taken away: whoever holds its ModelPtr uses it. But once a
// request has waited for room for a while, newcomers of the models that stand in its way wait
// behind it.
//
// Thread-safe, but close() and join(), which one thread calls, in this order.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/served_model.h"

namespace headrace {

// A model that can be loaded.
struct ModelSource {
  std::string name;
  std::vector<std::string> aliases;
  size_t num_bytes = 0;  // of memory that it takes, about
  // On the registry's thread; progress(0 to 1) tells how far it is. The model must own what it is
  // made of. The error's text goes to the log; to clients only that of kExhausted.
  std::function<Result<ModelPtr>(const std::function<void(double)>& progress)> load;
  std::vector<AdapterRegistry::Recipe> adapters = {};  // that it has when it is loaded first
};

struct RegistryOptions {
  std::chrono::milliseconds keep_alive{300'000};  // a model sleeps when idle for so long; negative:
                                                  // never
  size_t memory_bytes = 0;                        // for the sources' models together; 0: no limit
  std::chrono::milliseconds load_patience{300'000};  // how long a request waits
  // How long a request waits for room until newcomers of other models wait behind it. Long enough
  // for a short answer to end by itself; short beside a load, which is what a change costs.
  std::chrono::milliseconds turn_after{2'000};
  size_t max_waiting = 256;             // requests that wait for models
  std::chrono::milliseconds tick{500};  // how often it looks who is idle
};

struct ServedModels {
  // The first answers requests that name none. Empty: a server of other things, none of whose
  // routes asks for a model.
  std::vector<ModelPtr> always;
  std::vector<ModelSource> on_demand = {};
  RegistryOptions options = {};
};

enum class ModelState : uint8_t { kAsleep, kLoading, kAwake };

// What is told of one model.
struct ModelStatus {
  std::vector<std::string> names;  // first: its own
  ModelState state = ModelState::kAsleep;
  ModelPtr model;                          // kAwake
  std::vector<std::string> adapters = {};  // that it will have when it wakes; else: none
  double progress = 0;                     // kLoading: 0 to 1
  size_t num_waiting = 0;
  size_t num_bytes = 0;  // of memory that it takes when it is awake, about
  bool stays = false;    // never sleeps
  bool failed = false;   // the last load did
  // kAwake: how long until it sleeps if nobody asks for it; none: never.
  std::optional<std::chrono::milliseconds> sleeps_in = {};
};

class ModelRegistry {
 public:
  using UseModel = std::function<void(Result<ModelPtr>)>;
  using HasLeft = std::function<bool()>;  // takes no lock of the registry

  // Of a name that several have, the first is meant.
  explicit ModelRegistry(ServedModels models);
  ~ModelRegistry();

  // By name, alias or the name of an adapter that it has or had, each also with ":latest" behind
  // it; an empty name means the first model. Calls `use` once: at once, or on the registry's thread
  // when the model is loaded or those before it have had their turn. Who has left waits no longer.
  // kNotFound lists what there is; kExhausted: too many wait, or the model does not fit;
  // kUnavailable: it could not be loaded, or not in time.
  void acquire(std::string_view name, UseModel use, HasLeft has_left = {});
  // What is said of a name that nobody has.
  Error not_found(std::string_view name) const;
  // The same for who cannot wait: kUnavailable while it is loaded, which this begins, and while
  // others have their turn.
  Result<ModelPtr> find(std::string_view name);
  // The one that a body's "model" names.
  Result<ModelPtr> find_for(const boost::json::object& body);
  // The own name of the model that has an adapter of this name or had it before it slept; empty:
  // none.
  std::string owner_of_adapter(std::string_view name) const;
  bool is_empty() const { return entries_.empty(); }
  ModelPtr first() const { return entries_.at(0).model; }  // there is one
  std::vector<ModelPtr> all() const;                       // that are awake
  std::vector<ModelStatus> status() const;

  // As soon as nobody uses it. kNotFound; kInvalidArgument: it is one that stays.
  Status sleep(std::string_view name);
  // How long it stays when idle from now on, until it sleeps; negative: for ever.
  Status keep_alive(std::string_view name, std::chrono::milliseconds time);

  // Nothing more is loaded; who waits gets kUnavailable.
  void close();
  // After it no `use` runs. Waits for a load in progress.
  void join();

 private:
  using Clock = std::chrono::steady_clock;

  struct Waiter {
    UseModel use;
    HasLeft has_left;
    Clock::time_point since;
  };
  struct Entry {
    std::vector<std::string> names;
    ModelPtr model;  // null: asleep or being loaded. Of one that stays: constant
    bool stays = false;
    // Of the others.
    ModelSource source = {};
    std::vector<AdapterRegistry::Recipe> adapters = {};  // while it sleeps; only the registry's
                                                         // thread changes them
    bool loading = false;
    bool failed = false;
    bool wanted = false;  // to be loaded, or handed to those who wait
    double progress = 0;
    std::chrono::milliseconds keep_alive{};
    Clock::time_point loaded_at = {};
    Clock::time_point last_used = {};
    std::vector<Waiter> waiting = {};  // in the order of arrival

    bool is_in_use() const { return model.use_count() > 1; }
    // From now on, if nobody asks for it; none: it stays, or is not awake.
    std::optional<std::chrono::milliseconds> sleeps_in() const;
    // Of the first who waits; of nobody: after all others.
    Clock::time_point waits_since() const {
      return waiting.empty() ? Clock::time_point::max() : waiting.front().since;
    }
  };

  Entry* entry_of(std::string_view name);     // as clients call it
  Entry* entry_named(std::string_view name);  // exactly
  static bool has_adapter(const Entry& entry, std::string_view name);
  // All below with mutex_ held, but while they load, free or call.
  void run();
  void serve_wanted(std::unique_lock<std::mutex>& lock);
  std::vector<Entry*> asleep_in_order();
  const Entry* first_in_line() const;
  bool is_in_the_way(const Entry& entry) const;
  void let_through(std::unique_lock<std::mutex>& lock);
  void load(Entry& entry, std::unique_lock<std::mutex>& lock);
  Result<ModelPtr> make(Entry& entry);
  bool make_room(const Entry& entry, std::unique_lock<std::mutex>& lock);
  bool free_longest_idle(std::unique_lock<std::mutex>& lock);
  void put_to_sleep(Entry& entry, std::unique_lock<std::mutex>& lock);
  void answer(Entry& entry, const Result<ModelPtr>& result, std::unique_lock<std::mutex>& lock);
  void expire_waiting(std::unique_lock<std::mutex>& lock);
  void free_idle(std::unique_lock<std::mutex>& lock);
  size_t used_bytes(Clock::time_point loaded_from = Clock::time_point::min()) const;

  const RegistryOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // their number and names are constant
  size_t num_waiting_ = 0;
  bool closed_ = false;
  std::thread thread_;  // last; runs only if something is on demand
};

std::string_view name_of(ModelState state);  // "asleep", "loading", "awake"

}  // namespace headrace
