// The numerics id: one name for everything but the weights that decides the bits of an answer.
//
// Equal ids, equal weights and equal requests give equal bytes. It covers the arithmetic of every
// op (numerics class and version, form of activations), the split of keys and values and their
// type, and the sampler. The same everywhere: `headrace version`, /version, benchmarks; the
// system_fingerprint of a response is the id followed by a digest that names the weights' files.
#pragma once

#include <string>
#include <string_view>

#include "backend/backend.h"

namespace headrace {

// The ingredients, a line each.
std::string numerics_text(const Backend& backend, KvType kv_type);
// "hr-" and 16 hex digits of the SHA-256 of such a text.
std::string numerics_id(std::string_view text);
std::string numerics_id(const Backend& backend, KvType kv_type);
// The id, "-" and 8 hex digits that stand for the checkpoint.
std::string system_fingerprint(std::string_view numerics_id, std::string_view checkpoint);

}  // namespace headrace
