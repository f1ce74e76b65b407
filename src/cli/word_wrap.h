// WordWrap: text that comes in pieces, broken between words at the width of a terminal.
//
// A word is held back until it is whole, so that nothing that has been written is ever moved.
// Columns are counted as terminals do (wide characters two, combining ones none). Control
// characters other than newline and tab are left out, so that an answer cannot steer the terminal.
// One answer, one thread.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

class WordWrap {
 public:
  // columns: of the terminal; the last one stays free, because terminals differ in what they do
  // there.
  explicit WordWrap(int columns) : limit_(columns > 2 ? columns - 1 : 1) {}

  // What to write for the next piece of UTF-8 text, which begins and ends between characters.
  std::string feed(std::string_view piece);
  // What is still held back.
  std::string finish();

 private:
  void take(std::string_view bytes, char32_t code, std::string* out);
  void take_space(std::string_view bytes, int width, std::string* out);
  void take_letter(std::string_view bytes, int width, std::string* out);
  void place_word(std::string* out);
  void break_line(bool by_wrapping, std::string* out);

  int limit_;
  int column_ = 0;
  bool wrapped_ = false;  // the line began by wrapping: blanks at its start are left out
  std::string word_;      // held back
  int word_width_ = 0;
};

// Text without control characters except newline and tab: as above, without wrapping.
std::string without_controls(std::string_view text);

}  // namespace headrace
