// http_client: requests of this program to a running server. Blocking; any thread.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "options.h"

namespace headrace {

struct HttpAnswer {
  long status = 0;
  std::string body;  // empty where `piece` took it
};

struct HttpCall {
  std::string url;   // http or https
  std::string key;   // of the Authorization header; empty: none
  std::string ca;    // file of certificates to trust; empty: those of the system
  std::string body;  // empty: GET, else POST of JSON
  // Given an answer with a good status (2xx), takes its body as it comes; false: stop.
  std::function<bool(std::string_view)> piece = {};
  const std::atomic<bool>* interrupted = nullptr;  // true: stop, with what there is
  long connect_seconds = 10;
};

// To a path of the server at this address, with the options that say how: --api-key and --ca.
HttpCall call_of(const Options& options, const std::string& address, std::string_view path);

// kUnavailable: nobody answers at that address, the connection broke, or a
// server with TLS is not the one that it says; kInvalidArgument: no such address can be. A status
// that is not good is an answer, not an error.
Result<HttpAnswer> call_server(const HttpCall& call);

// "http://127.0.0.1:8080" from what people type: a scheme is added, "/v1" and slashes at the end
// are taken off.
std::string server_address(std::string typed);

}  // namespace headrace
