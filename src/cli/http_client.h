// http_client: requests of this program to a running server. Blocking; any thread.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

struct HttpAnswer {
  long status = 0;
  std::string body;  // empty where `piece` took it
};

struct HttpCall {
  std::string url;   // http or https
  std::string key;   // of the Authorization header; empty: none
  std::string body;  // empty: GET, else POST of JSON
  // Given an answer with a good status (2xx), takes its body as it comes; false: stop.
  std::function<bool(std::string_view)> piece = {};
  const std::atomic<bool>* interrupted = nullptr;  // true: stop, with what there is
  long connect_seconds = 10;
};

// kUnavailable: nobody answers at that address, or the connection broke; kInvalidArgument: no such
// address can be. A status that is not good is an answer, not an error.
Result<HttpAnswer> call_server(const HttpCall& call);

// "http://127.0.0.1:8080" from what people type: a scheme is added, "/v1" and slashes at the end
// are taken off.
std::string server_address(std::string typed);

}  // namespace headrace
