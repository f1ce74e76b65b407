// JsonWriter: one JSON text, written front to back. Answers are small, many and of fixed shape: no
// value is built first. Numbers have the fewest digits that read back to the same value.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace headrace {

// Quoted and escaped. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// Invalid bytes replaced by U+FFFD.
std::string valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);
int64_t count_characters(std::string_view utf8);

// Appends one JSON text. Commas are placed by the writer; nesting is the caller's duty.
class JsonWriter {
 public:
  JsonWriter& open_object() { return open('{'); }
  JsonWriter& close_object() { return close('}'); }
  JsonWriter& open_array() { return open('['); }
  JsonWriter& close_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& text(std::string_view value);
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);  // not finite: null
  JsonWriter& number(float value);   // shortest form of the float
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // a complete JSON value

  // Members: key and value in one call.
  JsonWriter& text(std::string_view name, std::string_view value) { return key(name).text(value); }
  JsonWriter& integer(std::string_view name, int64_t value) { return key(name).integer(value); }
  JsonWriter& number(std::string_view name, double value) { return key(name).number(value); }
  JsonWriter& boolean(std::string_view name, bool value) { return key(name).boolean(value); }

  const std::string& str() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool needs_comma_ = false;
};

}  // namespace headrace
