// cache_miss: why tokens of a prompt were computed although prefixes are cached, as far as the
// numbers of a request say. Pure.
#pragma once

#include <string_view>

#include "server/api/generation.h"

namespace headrace {

// A word for people and programs; empty: all that could be found was.
//   scored   log-probs or pooled states of the prompt were asked for, so each of its tokens is
//            computed
//   short    the prompt is no longer than a block of the cache
//   new      no kept prompt of this model, adapter and cache domain begins like it: there was none,
//            or it has been evicted
//   differs  it goes on otherwise than what is kept, or what is kept ends
std::string_view cache_miss(const GenerationRequest& request, const Usage& usage);

}  // namespace headrace
