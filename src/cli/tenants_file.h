// tenants_file: the tenants of `headrace serve`, a TOML file with a table for each:
//
//     [research]
//     weight = 3                  # beside its siblings; 1 without
//     guarantee = 0.25            # of all steps' time, whatever the weights
//     burst = 20                  # seconds of steps that a guarantee saves up
//     [research-batch]
//     parent = "research"         # at the root without
//     keys = ["ann", "nightly"]   # names of --api-key-file
//     cache = "shared"            # its keys find each other's prefixes; "separate" without
//
// What the numbers mean: engine/tenants.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tenant_book.h"
#include "server/api_keys.h"

namespace headrace {

struct ConfiguredTenant {
  TenantSpec spec;                     // without clients
  std::vector<std::string> keys = {};  // names, of no other tenant
  bool shares_cache = false;
};

// kNotFound: there is no such file; kInvalidArgument with the file, and with the line or the
// tenant, and what is wrong there: no TOML, no field of a tenant, a value of the wrong kind or out
// of range, a key that is none of `keys` or is another tenant's, or no tree.
Result<std::vector<ConfiguredTenant>> read_tenants_file(const std::string& path,
                                                        const std::vector<ApiKey>& keys);

// The tenants in use, for the engines and for who reads the keys. Not thread-safe but for book().
class ServedTenants {
 public:
  // secret: what numbers of clients are made with (ServerOptions::client_secret).
  explicit ServedTenants(std::string secret) : secret_(std::move(secret)) {}

  // From now on those of this file; an empty path: none. An error leaves all as it was.
  // kInvalidArgument where there are no keys that a tenant could have; else as read_tenants_file().
  Status read(const std::string& path, const std::vector<ApiKey>& keys);
  // Writes the cache group of each key.
  void mark(std::vector<ApiKey>* keys) const;
  size_t size() const { return tenants_.size(); }
  const TenantBook& book() const { return book_; }

 private:
  const std::string secret_;
  std::vector<ConfiguredTenant> tenants_;
  TenantBook book_;
};

}  // namespace headrace
