// The table of models that have a name of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

// A model that packages of the Python index carry, in parts that are concatenated in order.
struct NamedModel {
  std::string_view name;     // "smollm2:135m"
  std::string_view package;  // fmt pattern of the part's number, from 1
  std::string_view version;
  std::string_view member;  // fmt pattern: {0} the part's number from 1, {1} from 0
  int num_parts;
  uint64_t num_bytes;       // of the whole file
  std::string_view sha256;  // of the whole file
  std::string_view licence;
};

std::span<const NamedModel> named_models();

}  // namespace headrace
