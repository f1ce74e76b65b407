#include "cli/word_wrap.h"

#include <wchar.h>

#include <algorithm>

namespace headrace {
namespace {

constexpr int kTabColumns = 8;

// The code point at the front of valid UTF-8, and its length in bytes. Bytes that are none count
// one each.
char32_t decode_front(std::string_view text, size_t* length) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  *length = std::min(wanted, text.size());
  if (*length == 1) return lead;
  char32_t code = lead & (0x7FU >> *length);
  for (size_t i = 1; i < *length; ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return code;
}

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

int columns_of(char32_t code) { return std::max(0, ::wcwidth(static_cast<wchar_t>(code))); }

}  // namespace

std::string WordWrap::feed(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    size_t length = 0;
    const char32_t code = decode_front(piece, &length);
    take(piece.substr(0, length), code, &out);
    piece.remove_prefix(length);
  }
  return out;
}

std::string WordWrap::finish() {
  std::string out;
  place_word(&out);
  return out;
}

void WordWrap::take(std::string_view bytes, char32_t code, std::string* out) {
  if (code == '\n') {
    place_word(out);
    break_line(false, out);
  } else if (code == '\t') {
    place_word(out);
    take_space(bytes, kTabColumns - column_ % kTabColumns, out);
  } else if (code == ' ' || code == 0x3000) {
    place_word(out);
    take_space(bytes, columns_of(code), out);
  } else if (!is_control(code)) {
    take_letter(bytes, columns_of(code), out);
  }
}

void WordWrap::take_space(std::string_view bytes, int width, std::string* out) {
  if (column_ == 0 && wrapped_) return;
  if (column_ + width > limit_) return break_line(true, out);
  *out += bytes;
  column_ += width;
}

void WordWrap::take_letter(std::string_view bytes, int width, std::string* out) {
  // Scripts of wide characters break anywhere; what is longer than a line is cut.
  if (width == 2 || word_width_ + width > limit_) place_word(out);
  word_ += bytes;
  word_width_ += width;
  if (width == 2) place_word(out);
}

void WordWrap::place_word(std::string* out) {
  if (column_ + word_width_ > limit_ && column_ > 0) break_line(true, out);
  *out += word_;
  column_ += word_width_;
  word_.clear();
  word_width_ = 0;
}

void WordWrap::break_line(bool by_wrapping, std::string* out) {
  *out += '\n';
  column_ = 0;
  wrapped_ = by_wrapping;
}

std::string without_controls(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    size_t length = 0;
    const char32_t code = decode_front(text, &length);
    if (!is_control(code) || code == '\n' || code == '\t') kept += text.substr(0, length);
    text.remove_prefix(length);
  }
  return kept;
}

}  // namespace headrace
