// What `headrace inspect` tells of a network: its kinds of layers, experts, sizes and how much of
// it a token uses. From the configuration and the headers of tensors alone.
#pragma once

#include <boost/json.hpp>

#include "backend/backend.h"
#include "model/cache_groups.h"
#include "model/config/config.h"
#include "model/weights.h"

namespace headrace {

boost::json::object describe_config(const ModelConfig& config);

// Weights that a token meets: all but the embedding's other rows and the experts it is not sent to.
int64_t active_parameters(const ModelConfig& config, const FoundWeights& found);

// Of one more token of a long context: a window holds no more tokens than before, a state no more
// states.
size_t kv_bytes_of_token(const CacheLayout& layout);
// What a sequence keeps as state, whatever its length.
size_t state_bytes_of_sequence(const CacheLayout& layout, const Backend& backend);

}  // namespace headrace
