// Texts from people, files and models: are they text, and how do they look on a screen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace headrace {

// kInvalidArgument if `what` ("the prompt") is not UTF-8, with the first byte that is wrong.
Status check_text(std::string_view text, std::string_view what);

// "text" in double quotes; quotes, backslashes, newline, tab and control characters escaped.
// Characters of all scripts stay; bytes that are no UTF-8 become \xNN.
std::string readable(std::string_view text);

// What a token adds to a text: `" world"`, `"\n"`, `"\xe2\x82" (part of a character)`,
// `"<|im_end|>" (special)`.
std::string readable_token(const Tokenizer& tokenizer, int32_t id);

}  // namespace headrace
