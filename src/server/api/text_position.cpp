#include "server/api/text_position.h"

#include <algorithm>

#include "server/api/json.h"

namespace headrace {
TextPosition::TextPosition(const Tokenizer& tokenizer, std::string_view echo_text,
                           StreamDecoder output)
    : tokenizer_(tokenizer),
      echo_text_(echo_text),
      prompt_(tokenizer, {}, /*skip_special=*/true),
      output_(std::move(output)),
      next_(count_characters(echo_text)) {}

// A special token is part of the text only where the text spells it.
int64_t TextPosition::of_prompt(int32_t id) {
  const int64_t position = echo_characters_;
  std::string text;
  if (tokenizer_.is_special(id)) {
    const std::string spelled = tokenizer_.token_bytes(id, false);
    if (echo_text_.substr(echo_bytes_).starts_with(spelled)) text = spelled;
  } else {
    text = prompt_.push(id).text;
  }
  echo_bytes_ = std::min(echo_bytes_ + text.size(), echo_text_.size());
  echo_characters_ = std::min(echo_characters_ + count_characters(text), next_);
  return position;
}

int64_t TextPosition::of_output(int32_t id) {
  const int64_t position = next_;
  next_ += count_characters(output_.push(id).text);
  return position;
}

}  // namespace headrace
