#include "cli/readable.h"

#include <fmt/format.h>

#include <iterator>

#include "base/strings.h"

namespace headrace {
namespace {

// Length of the UTF-8 character at the front; 0 if the bytes are none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

// A control character that lies beyond ASCII.
bool is_wide_control(std::string_view text) {
  return text.size() > 1 && text[0] == '\xc2' && static_cast<unsigned char>(text[1]) < 0xA0;
}

void append_ascii(char c, std::string* out) {
  constexpr std::string_view kPlain = "\n\t\r\"\\";
  constexpr std::string_view kNames = "ntr\"\\";
  const size_t at = kPlain.find(c);
  if (at != std::string_view::npos) {
    *out += '\\';
    *out += kNames[at];
  } else if (c < ' ' || c == 0x7F) {
    append_format(*out, "\\x{:02x}", static_cast<unsigned char>(c));
  } else {
    *out += c;
  }
}

}  // namespace

Status check_text(std::string_view text, std::string_view what) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = character_length(text.substr(at));
    if (length == 0) {
      Error error =
          make_error(ErrorCode::kInvalidArgument, "{} is not UTF-8 text: byte {} is {:#04x}", what,
                     at + 1, static_cast<unsigned char>(text[at]));
      error.hint = "iconv converts texts; other files cannot be read";
      return error;
    }
    at += length;
  }
  return {};
}

std::string readable(std::string_view text) {
  std::string shown = "\"";
  while (!text.empty()) {
    const size_t length = character_length(text);
    if (length == 0 || is_wide_control(text)) {
      append_format(shown, "\\x{:02x}", static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    if (length == 1) {
      append_ascii(text.front(), &shown);
    } else {
      shown += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return shown + "\"";
}

std::string readable_token(const Tokenizer& tokenizer, int32_t id) {
  const std::string bytes = tokenizer.token_bytes(id, false);
  std::string shown = readable(bytes);
  if (tokenizer.is_special(id)) return shown + " (special)";
  if (!check_text(bytes, "").ok()) shown += " (part of a character)";
  return shown;
}

}  // namespace headrace
