// libFuzzer target: parses the input as a gguf file; what is accepted is read to the last byte.
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/gguf.h"
#include "read_checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto checkpoint = headrace::parse_gguf(std::as_bytes(std::span(data, size)), "input");
  if (checkpoint.ok()) headrace::fuzz::read_everything(**checkpoint);
  return 0;
}
