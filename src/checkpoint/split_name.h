// The names of a split GGUF's parts: "PREFIX-00001-of-00003.gguf".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace {

struct SplitName {
  std::string prefix;
  int64_t part = 0;  // from 0
  int64_t num_parts = 1;

  std::string of_part(int64_t other) const;
};

// "-00001-of-00003.gguf" for part 0 of 3.
std::string split_suffix(int64_t part, int64_t num_parts);

// Of the name or path of a file; nothing if it is not that of a part.
std::optional<SplitName> parse_split_name(std::string_view name);

}  // namespace headrace
