#include "engine/numerics.h"

#include <fmt/format.h>

#include <span>

#include "checkpoint/digest.h"
#include "engine/sampler.h"

namespace headrace {
namespace {

std::string hex_of(std::string_view text, size_t num_bytes) {
  const FileDigest digest = sha256(text);
  std::string hex;
  for (const std::byte byte : std::span(digest).first(num_bytes)) {
    hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  }
  return hex;
}

}  // namespace

std::string numerics_text(const Backend& backend, KvType kv_type) {
  return fmt::format("{}keys and values as {}\nsampler v{}\n", backend.numerics(kv_type),
                     kv_type_name(kv_type), kSamplerVersion);
}

std::string numerics_id(std::string_view text) { return "hr-" + hex_of(text, 8); }

std::string numerics_id(const Backend& backend, KvType kv_type) {
  return numerics_id(numerics_text(backend, kv_type));
}

std::string system_fingerprint(std::string_view numerics_id, std::string_view checkpoint) {
  return fmt::format("{}-{}", numerics_id, hex_of(checkpoint, 4));
}

}  // namespace headrace
