// ChatTemplate: messages (and tools) to prompt text, by the model's own Jinja template.
//
// Renders as transformers does, byte for byte. Thread-safe after construction. Bounded: fuel,
// recursion depth and output size have limits; exceeding one is an error, never a hang.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

class ChatTemplate {
 public:
  // special_tokens_json: {"bos_token": "<s>", ...}, the strings templates may use.
  // kInvalidArgument with line and reason if the template does not parse.
  static Result<std::unique_ptr<ChatTemplate>> create(std::string_view source,
                                                      std::string_view special_tokens_json);
  virtual ~ChatTemplate() = default;

  // options_json: an object with "messages" and any of "tools", "documents",
  // "add_generation_prompt", "continue_final_message" and further template variables.
  // kInvalidArgument carries the template's own message when it raises. now: fixed time for
  // strftime_now in tests, "2026-01-02T03:04:05".
  virtual Result<std::string> render(std::string_view options_json,
                                     std::optional<std::string_view> now = {}) const = 0;
  virtual const std::string& source() const = 0;
};

}  // namespace headrace
