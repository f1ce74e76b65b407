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
//   new      no kept prompt of this model, adapter and cache domain begins like it, and none did
//            lately
//   differs  it goes on otherwise than what is kept, or what is kept ends
// And, known to the engine (Usage::miss):
//   evicted  what it goes on with was kept until lately
//   edited   it goes on otherwise than the session that it is of; the usage says at which token
//   adapter  the session had another adapter
//   rope     the session had another rope table: its text was shorter
std::string_view cache_miss(const GenerationRequest& request, const Usage& usage);

// What the engine knows, as members of a usage: {"cache_miss": {...}}; nothing where nothing is.
void write_cache_miss(JsonWriter& json, const CacheMiss& miss);

}  // namespace headrace
