// kv_batch: events of the prefix cache as the message that KV-aware routers read: the schema of
// vLLM's stream, packed by msgpack. Pure functions.
//
// Two forms are in use: maps with a "type" (the current one) and arrays that begin with it (the one
// before, which some readers still expect). Blocks that follow each other are one event.
// Source: vllm/distributed/kv_events.py; the llm-d and Dynamo documents on custom engines.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/kv_events.h"

namespace headrace {

enum class KvBatchForm : uint8_t { kMaps, kArrays };

// seconds: of the wall clock, when the batch is made.
std::string pack_kv_batch(std::span<const KvEvent> events, double seconds, KvBatchForm form);

}  // namespace headrace
