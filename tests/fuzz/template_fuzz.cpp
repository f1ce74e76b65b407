// libFuzzer: a chat template, rendered with a small conversation. It may be refused, and may fail;
// it may not crash, hang or write more than it is allowed.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

namespace {

constexpr std::string_view kOptions = R"({
  "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function",
      "function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]},
    {"role": "tool", "content": "42", "tool_call_id": "c1"}],
  "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}],
  "add_generation_prompt": true})";
constexpr size_t kMaxOutputBytes = 16 << 20;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto chat_template = headrace::ChatTemplate::create(source, R"({"bos_token": "<s>"})");
  if (!chat_template.ok()) return 0;
  const auto text = (*chat_template)->render(kOptions, "2026-01-02T03:04:05");
  if (text.ok()) CHECK(text->size() <= kMaxOutputBytes);
  return 0;
}
