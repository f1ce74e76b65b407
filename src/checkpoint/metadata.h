// Metadata: the typed key-value table of a GGUF file (or the string table of a safetensors file).
//
// Integer keys come in every width and scalars come as one-element values or arrays, depending on
// the converter's age; the getters accept any that fit and range-check. Strings and arrays of
// numbers are views into the mapped file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headrace {

struct MetadataValue {
  using Array = std::variant<std::vector<int64_t>, std::vector<double>,
                             std::vector<std::string_view>, std::vector<bool>>;
  std::variant<int64_t, uint64_t, double, bool, std::string_view, Array> value;
};

class Metadata {
 public:
  const MetadataValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Nothing if the key is absent or holds another kind of value.
  std::optional<int64_t> integer(std::string_view key) const;  // also from bool and whole floats
  std::optional<double> number(std::string_view key) const;    // also from integers
  std::optional<bool> boolean(std::string_view key) const;     // also from integers
  std::optional<std::string_view> text(std::string_view key) const;
  const std::vector<std::string_view>* texts(std::string_view key) const;
  // Any integer or bool array; a scalar gives one element.
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;

  const std::map<std::string, MetadataValue, std::less<>>& entries() const { return entries_; }
  bool insert(std::string key, MetadataValue value);  // false if the key is there already

 private:
  std::map<std::string, MetadataValue, std::less<>> entries_;
};

}  // namespace headrace
