// libFuzzer: bytes as one HTTP request. Nothing may crash; what is accepted must be consistent.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/http.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headrace::HttpOptions options;
  options.max_head_bytes = 4096;
  options.max_body_bytes = 4096;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto request = headrace::parse_request(bytes, options);
  if (!request.ok()) {
    CHECK(!request.error().message.empty());
    return 0;
  }
  CHECK(request->body.size() <= options.max_body_bytes);
  CHECK(request->path.find('\0') == std::string::npos);
  CHECK(!request->request_id.empty() && request->request_id.size() <= 128);
  return 0;
}
