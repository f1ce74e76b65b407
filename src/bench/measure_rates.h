// Measures what ops reach (op_rates.h): each op alone, through the back end that models use, on
// random data, with as many threads as the back end has. Medians of windows of a millisecond, so
// several rounds apart are needed where other processes run: the best of them counts.
// Products are those of layouts as they are packed, over weights that lie in the cores' caches,
// beyond them, and in memory. Blocks the caller; a sixth of a second for each layout and type.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "base/result.h"
#include "bench/op_rates.h"

namespace headrace {

struct RatedParts {
  std::span<const cpu::Layout> layouts;
  std::span<const KvType> kv_types;
  // A model's weights, if steps of it are expected: reads of them and of the memory that products
  // are measured on are rated too.
  const DeviceMemory* weights = nullptr;
};

// Times of calls by name, each the median of all rounds, as those of the points that they are held
// against are: a machine has slow and fast minutes. Rates are differences of such times.
class RoundTimes {
 public:
  // The median so far, this among them; of two the shorter.
  double add(std::string name, double seconds);

 private:
  std::map<std::string, std::vector<double>, std::less<>> times_;  // ascending
};

// One round more. Adds to `rates` what the back end reached in all rounds of `times`; kernels: the
// rows that it uses. What `rates` has already is not measured again. kExhausted when memory is
// short.
Status measure_rates(Backend& backend, const cpu::KernelSet& kernels, const RatedParts& parts,
                     RoundTimes* times, OpRates* rates);

// Of all layouts and types of keys and values, in both arithmetics, the better of two rounds.
Result<OpRates> measure_all_rates(int num_threads);

}  // namespace headrace
