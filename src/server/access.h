// access: who may ask. Decided on a request's head, before a byte of its body is read.
//
// Any web page can make a browser send requests to this machine, and a name that changes its
// address (DNS rebinding) lets it read the answers. So, in this order:
//   Host        while listening on loopback, or with a list of allowed hosts: an IP address, a name
//               without a dot or below .localhost (no one can own these in public DNS), or a name
//               of the list.
//   Origin      absent, the server's own (the page), or one of the list of CORS origins.
//   Sec-Fetch-Site  for all but GET and HEAD, without Origin: absent, same-origin or none.
//   key         where keys are set, for every row that is not public: a known one (else 401), of a
//               scope that the row asks for (else 403). Keys are in api_keys.h.
//   Content-Type    of a POST: application/json, or none; a form's, which curl -d sends, only
//               without Origin and Sec-Fetch-Site, which every browser sends.
// Thread-safe; constant after construction but for the keys, which set_keys() replaces. Sources:
// Fetch (CORS), Fetch Metadata, RFC 6454.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/api/dialect.h"
#include "server/api_keys.h"
#include "server/http/http.h"
#include "server/server_options.h"

namespace headrace {

class Access {
 public:
  explicit Access(const ServerOptions& options);

  // 403 with the reason and what to do.
  std::optional<Problem> check_source(const HttpRequest& request) const;
  // 401, or 403 where the key has none of these scopes; else sets the request's client, key name
  // and cache group to the key's. Without keys everyone may ask for all but what needs the scope
  // admin.
  std::optional<Problem> check_key(HttpRequest& request, KeyScopes scopes) const;
  // 415.
  std::optional<Problem> check_content(const HttpRequest& request) const;
  // What a browser needs to let a page of a listed origin read the answer; methods: of the path.
  HttpHeaders cors_headers(const HttpRequest& request) const;
  HttpHeaders preflight_headers(const HttpRequest& request, std::string_view methods) const;

  // From the next request on. A server that began with keys keeps some.
  void set_keys(std::vector<ApiKey> keys);
  bool has_keys() const;

 private:
  // A key as it is compared, and who its owner is to the engine and the cache.
  struct KnownKey {
    ApiKey key;
    uint64_t client = 0;
  };

  bool is_allowed_host(std::string_view header) const;
  bool is_listed_origin(std::string_view origin) const;
  std::shared_ptr<const std::vector<KnownKey>> keys() const;

  const std::string secret_;  // of this process, or the options': see client_of()
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<KnownKey>> keys_;  // guarded; never null
  std::vector<std::string> hosts_;                     // lower case
  std::vector<std::string> origins_;                   // lower case
  bool any_host_ = true;
  bool any_origin_ = false;
};

// kInvalidArgument if one of --cors-origins is none that a browser sends, so that it would never
// match: neither "*" nor "null" nor scheme://host[:port].
Status check_origins(const std::vector<std::string>& origins);

// Is this address one that only this machine reaches?
bool is_loopback_host(std::string_view host);

}  // namespace headrace
