// cache_fields: what a body says of the prefix cache: whom it shares with, which conversation it is
// of, and how long what it leaves is worth keeping.
#pragma once

#include "base/result.h"
#include "server/api/fields.h"
#include "server/api/generation.h"

namespace headrace {

Status read_cache_fields(const Fields& fields, GenerationRequest& request);

}  // namespace headrace
