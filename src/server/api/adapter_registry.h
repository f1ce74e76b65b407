// AdapterRegistry: the adapters of one served model, by the names that requests ask for them.
//
// A request holds the adapter that it found until it ends: taking one out or replacing it changes
// later requests alone. What was loaded is there when load() has returned, or nothing has changed.
// A model that sleeps takes its registry along; recipes() and restore() carry over what it had.
// Thread-safe. Owner: ServedModel; it ends before the model's weights do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/adapter_files.h"
#include "model/adapter.h"

namespace headrace {

inline constexpr size_t kMaxAdapters = 32;
inline constexpr size_t kMaxAdapterNameBytes = 256;

// What to tell where an adapter says that it was made for a model of another name; empty where the
// names are alike, or it says nothing. names: of the model here; at least one.
std::string base_model_warning(std::string_view base_model, std::span<const std::string> names);

class AdapterRegistry {
 public:
  // Makes an adapter for the model; from any thread.
  using Make = std::function<Result<std::unique_ptr<const Adapter>>(const AdapterFiles&)>;
  using Held = std::shared_ptr<const Adapter>;
  // Called again, from any thread, when a model that slept wakes: owns what it needs.
  using Read = std::function<Result<AdapterFolder>()>;

  // How an adapter is made once more.
  struct Recipe {
    std::string name;
    std::string source;  // as it was asked for: a path, or what is told of an upload
    Read read;
    std::string digest = {};  // of what it was; empty: any will do
  };
  struct Entry {
    std::string name;
    std::string source;
    Held adapter;
    int64_t loaded_s = 0;  // wall clock
  };

  // Without `make` the model takes none.
  explicit AdapterRegistry(Make make = {}) : make_(std::move(make)) {}

  // read() gives the files; one load at a time. kInvalidArgument: a bad name, or one that is taken
  // and not to be replaced; kUnavailable: another load runs; kExhausted: kMaxAdapters are there, or
  // memory is short; and what reading and making say.
  Result<Held> load(const std::string& name, const std::string& source, bool replace,
                    const Read& read);
  // kNotFound. Its memory goes with the last request that uses it.
  Status unload(std::string_view name);

  // Of all that are there or lost.
  std::vector<Recipe> recipes() const;
  // Before the first request. One that cannot be read any more, or is not what it was, is lost: it
  // keeps its name, and who asks for it is told.
  void restore(const std::vector<Recipe>& recipes);
  bool is_lost(std::string_view name) const;

  Held find(std::string_view name) const;   // null: there is none
  std::vector<Entry> all() const;           // by name
  std::vector<std::string> in_use() const;  // names of those that requests hold
  bool takes_any() const { return make_ != nullptr; }

 private:
  struct Loaded {
    Recipe recipe;
    Held adapter;  // null: lost
    int64_t loaded_s = 0;
  };
  Status check(const std::string& name, bool replace) const;
  Result<Held> make(const Recipe& recipe) const;
  void put(Loaded loaded);

  const Make make_;
  std::mutex loading_;
  mutable std::mutex mutex_;
  std::map<std::string, Loaded, std::less<>> entries_;
};

}  // namespace headrace
