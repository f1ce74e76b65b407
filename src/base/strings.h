// Small things with text that several folders need: letters, lists, sizes for people. ASCII only:
// bytes above 127 stay as they are.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

std::string to_lower(std::string_view text);

// Without blanks and tabs at both ends.
std::string_view trim_spaces(std::string_view text);

// The elements of "a, b,,c", trimmed; empty ones are left out. Views into the text.
std::vector<std::string_view> split_list(std::string_view text);

// "512 bytes", "93.8 MiB", "2 GiB": one decimal, unless it is 0.
std::string format_bytes(size_t num_bytes);

// As fmt::format, at the end of a text. One function of the library stands behind all of them:
// fmt::format_to compiles its formatter, two seconds of it, into every file that calls it.
void append_vformat(std::string& text, fmt::string_view format, fmt::format_args args);
template <typename... Args>
void append_format(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  append_vformat(text, format, fmt::make_format_args(args...));
}

}  // namespace headrace
