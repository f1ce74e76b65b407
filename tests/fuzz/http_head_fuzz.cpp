// libFuzzer: bytes as one HTTP request. Nothing may crash; what is accepted must be consistent, and
// the same for every cut of the bytes.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/http/http.h"
#include "server/http/parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headrace::HttpOptions options;
  options.max_head_bytes = 4096;
  options.max_body_bytes = 4096;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto request = headrace::parse_request(bytes, options);
  headrace::RequestParser parser(options);
  std::string_view rest = bytes;
  while (!rest.empty() && !parser.done() && !parser.refusal()) {
    rest.remove_prefix(parser.put(rest.substr(0, 1)));
  }
  CHECK(parser.done() == request.ok());
  if (!request.ok()) {
    CHECK(!request.error().message.empty());
    return 0;
  }
  CHECK(parser.request().body == request->body && parser.request().path == request->path);
  CHECK(request->body.size() <= options.max_body_bytes);
  CHECK(request->path.find('\0') == std::string::npos);
  CHECK(!request->request_id.empty() && request->request_id.size() <= 128);
  return 0;
}
