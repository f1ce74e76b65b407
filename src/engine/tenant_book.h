// TenantBook: the tenants that engines are to serve by, where they can change while engines run.
//
// Whoever reads the settings writes; each engine looks between steps. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/tenants.h"

namespace headrace {

class TenantBook {
 public:
  // Checked ones (tenants.h), instead of those before.
  void set(std::vector<TenantSpec> specs) {
    std::lock_guard lock(mutex_);
    specs_ = std::move(specs);
    ++version_;
  }

  // What was set since the version *seen (0: nothing yet), which becomes that of it; costs a load
  // where there is none.
  std::optional<std::vector<TenantSpec>> newer_than(uint64_t* seen) const {
    if (version_ == *seen) return std::nullopt;
    std::lock_guard lock(mutex_);
    *seen = version_;
    return specs_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<TenantSpec> specs_;      // guarded
  std::atomic<uint64_t> version_ = 0;  // changes with it, under the lock
};

}  // namespace headrace
