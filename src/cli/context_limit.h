// ContextLimit: how long a conversation can be, prompt and answer, and what keeps it from being
// longer.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

struct ContextLimit {
  int64_t num_tokens = 0;
  std::string_view option = {};  // that may allow more; empty: the model was made for no more
};

}  // namespace headrace
