// libFuzzer: a tokenizer.json, then a byte 0, then a text. Whatever loads must encode valid text or
// say why not, decode what it encoded, and stream the same text as it decodes at once.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  const auto tokenizer = headrace::Tokenizer::from_json(input.substr(0, cut));
  if (!tokenizer.ok()) return 0;
  for (const bool add_special : {false, true}) {
    const auto ids = (*tokenizer)->encode(text, add_special);
    if (!ids.ok()) continue;
    const auto decoded = (*tokenizer)->decode(*ids, false);
    CHECK(decoded.ok(), "{}", decoded.error().message);
    headrace::StreamDecoder stream(**tokenizer, {}, false);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.push(id).text;
    streamed += stream.finish().text;
    CHECK(streamed == *decoded);
  }
  return 0;
}
