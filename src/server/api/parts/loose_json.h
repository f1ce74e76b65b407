// loose_json: values as models write them where they do not write JSON, turned into JSON byte by
// byte: Python's literals, objects with bare keys, texts between marks. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
// A letter, digit or one of _.-: what names of functions and bare words consist of.
inline bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

// Appends a byte of a text to a JSON string. Bytes above 0x7F stay as they are.
void append_escaped(std::string& out, char c);
// null, true, 1.5 of None, True, 1.5; empty if the word is neither.
std::string json_of_word(std::string_view word);

// Turns members in brackets into a JSON object: (a=1, b='x') or {a:1,b:[True]}. The opening bracket
// is already read.
class LooseObject {
 public:
  enum class Step : uint8_t { kInside, kEnds, kBroken };

  // A byte that stands for a quote of `kMarkQuote` opens a text without escapes.
  static constexpr char kMarkQuote = '\x01';

  explicit LooseObject(char closing) : levels_{{closing, true}} {}
  // Appends what became sure to `json`.
  Step feed(char c, std::string& json);

 private:
  struct Level {
    char closing;
    bool is_object;
    bool any = false;  // items, so far
  };
  enum class Phase : uint8_t { kItem, kColon, kValue, kNext };

  Step mark(char c, std::string& json);
  Step open_level(char c, std::string& json);
  Step close_level(char c, std::string& json);
  Step open_text(char quote, std::string& json);
  Step end_word(std::string& json);
  void inside_text(char c, std::string& json);
  void escape(char c, std::string& json);
  void hex_digit(char c, std::string& json);
  // A comma where one is due. False: no item can stand here.
  bool begin_item(std::string& json);
  void end_item();

  std::vector<Level> levels_;
  Phase phase_ = Phase::kItem;
  bool is_key_ = false;   // the text or word at hand
  bool started_ = false;  // the object's bracket is written
  std::string word_;
  char quote_ = 0;  // of the text that is open
  bool escaped_ = false;
  size_t num_hex_ = 0;  // digits of an escape that are still to come
  std::string hex_;
};

}  // namespace headrace
