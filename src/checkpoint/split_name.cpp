#include "checkpoint/split_name.h"

#include <fmt/format.h>

#include <charconv>

namespace headrace {

std::string SplitName::of_part(int64_t other) const {
  return prefix + split_suffix(other, num_parts);
}

std::string split_suffix(int64_t part, int64_t num_parts) {
  return fmt::format("-{:05d}-of-{:05d}.gguf", part + 1, num_parts);
}

std::optional<SplitName> parse_split_name(std::string_view name) {
  const size_t suffix_bytes = split_suffix(0, 1).size();
  if (name.size() <= suffix_bytes) return std::nullopt;
  const std::string_view suffix = name.substr(name.size() - suffix_bytes);
  const auto number_at = [&](size_t offset) {
    int64_t number = 0;
    std::from_chars(suffix.data() + offset, suffix.data() + offset + 5, number);
    return number;
  };
  const SplitName split{std::string(name.substr(0, name.size() - suffix_bytes)), number_at(1) - 1,
                        number_at(10)};
  // Written anew it is the same: the numbers have five digits each, and nothing else is there.
  const bool same = split.part >= 0 && split.part < split.num_parts &&
                    suffix == split_suffix(split.part, split.num_parts);
  return same ? std::optional(split) : std::nullopt;
}

}  // namespace headrace
