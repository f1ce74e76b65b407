// Checks a request at the door, so that nothing inside the engine can fail because of it.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/beam_limits.h"
#include "engine/request.h"

namespace headrace {

inline constexpr int kMaxLogprobs = 20;  // alternatives per token
inline constexpr size_t kMaxLabels = 16;
inline constexpr size_t kMaxListedIds = 4096;  // stop ids; entries of logit_bias

struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_context = 0;  // tokens of prompt and output together
  BeamLimits beams = {};
};

// kInvalidArgument names the field in `param`, the value found and the values allowed.
Status check_request(const Request& request, const RequestLimits& limits);

}  // namespace headrace
