// Opens the tiers that an engine's options ask for.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_options.h"
#include "engine/tiers/kv_tiers.h"
#include "model/cache_groups.h"

namespace headrace {

// Null where none are asked for. Errors as of KvTiers::create(). numerics: as in engine/numerics.h.
Result<std::unique_ptr<KvTiers>> open_tiers(const EngineOptions& options, const CacheLayout& layout,
                                            const std::string& numerics, KvType kv_type);

}  // namespace headrace
