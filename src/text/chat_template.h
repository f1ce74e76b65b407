// ChatTemplate: messages (and tools) to prompt text, by the model's own Jinja template.
//
// Renders as transformers does, byte for byte. Thread-safe after construction. Bounded: steps,
// recursion depth, output size, memory and time have limits; exceeding one is an error of that call
// alone, whatever the template or the request did (text/render_process.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// A noncharacter of Unicode: no text of a request has it (it becomes U+FFFD where marks are made).
inline constexpr char32_t kContentMark = 0xFDD0;

class ChatTemplate {
 public:
  // special_tokens_json: {"bos_token": "<s>", ...}, the strings templates may use.
  // kInvalidArgument with line and reason if the template does not parse.
  // plain_json: {"special": [...], "written": [...]}: spellings of special tokens, and of others
  // that the template writes; a list is of special ones. Where the rendered text spells one that
  // the template did not write itself, it has kContentMark behind its first character
  // (docs/adr/0072); what the model said itself keeps the others. Empty: nothing is marked.
  static Result<std::unique_ptr<ChatTemplate>> create(std::string_view source,
                                                      std::string_view special_tokens_json,
                                                      std::string_view plain_json = {});
  virtual ~ChatTemplate() = default;

  // options_json: an object with "messages" and any of "tools", "documents",
  // "add_generation_prompt", "continue_final_message" and further template variables.
  // kInvalidArgument carries the template's own message when it raises. now: fixed time for
  // strftime_now in tests, "2026-01-02T03:04:05". kExhausted: try again later.
  virtual Result<std::string> render(std::string_view options_json,
                                     std::optional<std::string_view> now = {}) const = 0;
  virtual const std::string& source() const = 0;
};

}  // namespace headrace
