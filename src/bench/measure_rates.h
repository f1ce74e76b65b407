// Measures what ops reach (op_rates.h): each op alone, through the back end that models use, on
// random data, with as many threads as the back end has. Medians of windows of a few milliseconds.
// Products are those of layouts as they are packed, over weights that lie in the cores' caches,
// beyond them, and in memory. Blocks the caller; a quarter of a second for each layout and type.
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "base/result.h"
#include "bench/op_rates.h"

namespace headrace {

struct RatedParts {
  std::span<const cpu::Layout> layouts;
  std::span<const KvType> kv_types;
};

// Adds to `rates` what the back end reaches; kernels: the rows that it uses. What `rates` has
// already is not measured again. kExhausted when memory is short.
Status measure_rates(Backend& backend, const cpu::KernelSet& kernels, const RatedParts& parts,
                     OpRates* rates);

// Of all layouts and types of keys and values, in both arithmetics.
Result<OpRates> measure_all_rates(int num_threads);

}  // namespace headrace
