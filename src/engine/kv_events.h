// KvEvents: what the prefix cache tells of its blocks, for routers that send a prompt where its
// beginning is cached.
//
// Of each prefix of whole blocks one event when it can be found from now on, and one when it no
// longer can. Names are those of engine/prefix_index.h: they mean nothing outside this process but
// that equal ones are the same block.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "engine/keyed_digest.h"

namespace headrace {

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  uint64_t name = 0;               // of the prefix that ends with this block; not kCleared
  std::optional<uint64_t> parent;  // kStored: of the prefix before it; nothing: it is the first
  std::array<int32_t, kBlockTokens> tokens{};  // kStored
};

// Called on the engine thread while it plans and commits steps: must not wait.
class KvEventSink {
 public:
  virtual ~KvEventSink() = default;
  virtual void on_kv_event(const KvEvent& event) = 0;
};

}  // namespace headrace
