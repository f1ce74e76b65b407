// access: who may ask. Decided on a request's head, before a byte of its body is read.
//
// Any web page can make a browser send requests to this machine, and a name that changes its
// address (DNS rebinding) lets it read the answers. So, in this order:
//   Host        while listening on loopback, or with a list of allowed hosts: an IP address, a name
//               without a dot or below .localhost (no one can own these in public DNS), or a name
//               of the list.
//   Origin      absent, the server's own (the page), or one of the list of CORS origins.
//   Sec-Fetch-Site  for all but GET and HEAD, without Origin: absent, same-origin or none.
//   key         where keys are set, for every row that is not public.
//   Content-Type    of a POST: application/json, or none; a form's, which curl -d sends, only
//               without Origin and Sec-Fetch-Site, which every browser sends.
// Constant after construction; thread-safe. Sources: Fetch (CORS), Fetch Metadata, RFC 6454.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/dialect.h"
#include "server/http/http.h"
#include "server/server_options.h"

namespace headrace {

class Access {
 public:
  explicit Access(const ServerOptions& options);

  // 403 with the reason and what to do.
  std::optional<Problem> check_source(const HttpRequest& request) const;
  // 401, or sets the request's client to the key's.
  std::optional<Problem> check_key(HttpRequest& request) const;
  // 415.
  std::optional<Problem> check_content(const HttpRequest& request) const;
  // What a browser needs to let a page of a listed origin read the answer; methods: of the path.
  HttpHeaders cors_headers(const HttpRequest& request) const;
  HttpHeaders preflight_headers(const HttpRequest& request, std::string_view methods) const;

 private:
  using Digest = std::array<unsigned char, 32>;

  bool is_allowed_host(std::string_view header) const;
  bool is_listed_origin(std::string_view origin) const;
  Digest digest_of(std::string_view key) const;

  std::array<unsigned char, 32> secret_{};  // of this process: digests of keys mean nothing outside
  std::vector<Digest> keys_;
  std::vector<std::string> hosts_;    // lower case
  std::vector<std::string> origins_;  // lower case
  bool any_host_ = true;
  bool any_origin_ = false;
};

// Is this address one that only this machine reaches?
bool is_loopback_host(std::string_view host);

// Keys of a file, one a line; empty lines and those that begin with # are left out.
// kInvalidArgument: there is none, or one that no header can carry.
Result<std::vector<std::string>> parse_api_keys(std::string_view text, std::string_view source);

}  // namespace headrace
