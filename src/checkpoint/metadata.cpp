#include "checkpoint/metadata.h"

#include <cmath>
#include <utility>

namespace headrace {
namespace {

// Overloaded lambdas for std::visit.
template <typename... Callables>
struct Overloaded : Callables... {
  using Callables::operator()...;
};

using Array = MetadataValue::Array;

std::optional<int64_t> whole(double value) {
  // 2^63 itself is out of range; NaN fails both comparisons.
  if (!(value >= -0x1p63 && value < 0x1p63) || std::trunc(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

// The only element of a one-element array, else nothing: some converters write scalars so.
template <typename T, typename Stored>
std::optional<T> only_element(const Array& array) {
  const auto* elements = std::get_if<std::vector<Stored>>(&array);
  if (elements == nullptr || elements->size() != 1) return std::nullopt;
  return static_cast<T>((*elements)[0]);
}

}  // namespace

const MetadataValue* Metadata::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

bool Metadata::insert(std::string key, MetadataValue value) {
  return entries_.try_emplace(std::move(key), std::move(value)).second;
}

std::optional<int64_t> Metadata::integer(std::string_view key) const {
  using Value = std::optional<int64_t>;
  const MetadataValue* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  return std::visit(Overloaded{
                        [](int64_t value) -> Value { return value; },
                        [](uint64_t value) -> Value {
                          return value <= uint64_t{INT64_MAX} ? Value(static_cast<int64_t>(value))
                                                              : Value();
                        },
                        [](double value) -> Value { return whole(value); },
                        [](bool value) -> Value { return value ? 1 : 0; },
                        [](std::string_view) -> Value { return std::nullopt; },
                        [](const Array& array) -> Value {
                          if (const auto value = only_element<int64_t, int64_t>(array))
                            return value;
                          if (const auto value = only_element<double, double>(array))
                            return whole(*value);
                          return only_element<int64_t, bool>(array);
                        },
                    },
                    entry->value);
}

std::optional<double> Metadata::number(std::string_view key) const {
  using Value = std::optional<double>;
  const MetadataValue* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  return std::visit(Overloaded{
                        [](int64_t value) -> Value { return static_cast<double>(value); },
                        [](uint64_t value) -> Value { return static_cast<double>(value); },
                        [](double value) -> Value { return value; },
                        [](bool) -> Value { return std::nullopt; },
                        [](std::string_view) -> Value { return std::nullopt; },
                        [](const Array& array) -> Value {
                          if (const auto value = only_element<double, double>(array)) return value;
                          return only_element<double, int64_t>(array);
                        },
                    },
                    entry->value);
}

std::optional<bool> Metadata::boolean(std::string_view key) const {
  using Value = std::optional<bool>;
  const MetadataValue* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  return std::visit(Overloaded{
                        [](int64_t value) -> Value { return value != 0; },
                        [](uint64_t value) -> Value { return value != 0; },
                        [](double) -> Value { return std::nullopt; },
                        [](bool value) -> Value { return value; },
                        [](std::string_view) -> Value { return std::nullopt; },
                        [](const Array& array) -> Value {
                          if (const auto value = only_element<bool, bool>(array)) return value;
                          const auto value = only_element<int64_t, int64_t>(array);
                          return value ? Value(*value != 0) : Value();
                        },
                    },
                    entry->value);
}

std::optional<std::string_view> Metadata::text(std::string_view key) const {
  const MetadataValue* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<std::string_view>(&entry->value)) return *value;
  const auto* array = std::get_if<Array>(&entry->value);
  return array == nullptr ? std::nullopt : only_element<std::string_view, std::string_view>(*array);
}

const std::vector<std::string_view>* Metadata::texts(std::string_view key) const {
  const MetadataValue* entry = find(key);
  const auto* array = entry == nullptr ? nullptr : std::get_if<Array>(&entry->value);
  return array == nullptr ? nullptr : std::get_if<std::vector<std::string_view>>(array);
}

std::optional<std::vector<int64_t>> Metadata::integers(std::string_view key) const {
  const MetadataValue* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* array = std::get_if<Array>(&entry->value)) {
    if (const auto* integers = std::get_if<std::vector<int64_t>>(array)) return *integers;
    if (const auto* flags = std::get_if<std::vector<bool>>(array)) {
      return std::vector<int64_t>(flags->begin(), flags->end());
    }
    return std::nullopt;
  }
  const auto scalar = integer(key);
  if (!scalar) return std::nullopt;
  return std::vector<int64_t>{*scalar};
}

std::optional<std::vector<double>> Metadata::numbers(std::string_view key) const {
  const MetadataValue* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto* array = std::get_if<Array>(&entry->value)) {
    if (const auto* floats = std::get_if<std::vector<double>>(array)) return *floats;
    if (const auto* integers = std::get_if<std::vector<int64_t>>(array)) {
      return std::vector<double>(integers->begin(), integers->end());
    }
    return std::nullopt;
  }
  const auto scalar = number(key);
  if (!scalar) return std::nullopt;
  return std::vector<double>{*scalar};
}

}  // namespace headrace
