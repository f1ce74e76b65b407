#include "model/config/gguf_keys.h"

namespace headrace {

Result<int64_t> GgufKeys::integer(std::string_view key, std::optional<int64_t> fallback) const {
  if (const auto value = metadata_.integer(name(key))) return *value;
  if (metadata_.has(name(key))) {
    return make_error(ErrorCode::kInvalidArgument, "GGUF key {} must be a whole number", name(key));
  }
  if (fallback) return *fallback;
  return make_error(ErrorCode::kNotFound, "the GGUF file has no key {}, which is needed",
                    name(key));
}

// A scalar for all layers, or an array with one entry per layer.
Result<std::vector<int64_t>> GgufKeys::per_layer(std::string_view key, size_t num_layers,
                                                 std::optional<int64_t> fallback) const {
  if (!metadata_.has(name(key))) {
    if (fallback) return std::vector<int64_t>(num_layers, *fallback);
    return make_error(ErrorCode::kNotFound, "the GGUF file has no key {}, which is needed",
                      name(key));
  }
  auto values = metadata_.integers(name(key));
  if (values && values->size() == 1) return std::vector<int64_t>(num_layers, values->front());
  if (values && values->size() >= num_layers) {
    values->resize(num_layers);
    return *std::move(values);
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "GGUF key {} must be a whole number or an array of {} of them", name(key),
                    num_layers);
}

}  // namespace headrace
