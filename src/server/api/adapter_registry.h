// AdapterRegistry: the adapters of one served model, by the names that requests ask for them.
//
// A request holds the adapter that it found until it ends: taking one out or replacing it changes
// later requests alone. What was loaded is there when load() has returned, or nothing has changed.
// Thread-safe. Owner: ServedModel; it ends before the model's weights do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/adapter_files.h"
#include "model/adapter.h"

namespace headrace {

inline constexpr size_t kMaxAdapters = 32;
inline constexpr size_t kMaxAdapterNameBytes = 256;

class AdapterRegistry {
 public:
  // Makes an adapter for the model; from any thread.
  using Make = std::function<Result<std::unique_ptr<const Adapter>>(const AdapterFiles&)>;
  using Read = std::function<Result<AdapterFolder>()>;

  struct Entry {
    std::string name;
    std::string source;  // as it was asked for: a path
    std::shared_ptr<const Adapter> adapter;
    int64_t loaded_s = 0;  // wall clock
  };

  // Without `make` the model takes none.
  explicit AdapterRegistry(Make make = {}) : make_(std::move(make)) {}

  // read() gives the files; one load at a time. kInvalidArgument: a bad name, or one that is taken
  // and not to be replaced; kUnavailable: another load runs; kExhausted: kMaxAdapters are there, or
  // memory is short; and what reading and making say.
  Status load(const std::string& name, const std::string& source, bool replace, const Read& read);
  // kNotFound. Its memory goes with the last request that uses it.
  Status unload(std::string_view name);

  std::shared_ptr<const Adapter> find(std::string_view name) const;  // null: there is none
  std::vector<Entry> all() const;                                    // by name
  std::vector<std::string> in_use() const;  // names of those that requests hold
  bool takes_any() const { return make_ != nullptr; }

 private:
  Status check(const std::string& name, bool replace) const;

  const Make make_;
  std::mutex loading_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace headrace
