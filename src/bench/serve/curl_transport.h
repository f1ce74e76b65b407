// CurlTransport: requests over HTTP or HTTPS, all on the calling thread; connections are kept.
#pragma once

#include <memory>

#include "base/result.h"
#include "bench/serve/transport.h"

namespace headrace::loads {

struct Target {
  std::string url;  // of the route
  std::string key;  // of the Authorization header; empty: none
  std::string ca;   // file of certificates to trust; empty: those of the system
  double timeout_seconds = 600;
  int connections = 512;
};

// kInternal: the library cannot begin.
Result<std::unique_ptr<Transport>> open_transport(const Target& target);

}  // namespace headrace::loads
