// What `headrace bench machine --json` printed, read again: the limits of a machine that need not
// be this one.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/limits.h"
#include "bench/op_rates.h"

namespace headrace {

struct MachineFile {
  std::string processor;
  uint32_t isa = 0;         // IsaBits
  size_t memory_bytes = 0;  // 0: not told
  cpu::MachineLimits limits;
  OpRates rates;  // what ops reach; empty: a file of before they were measured

  // Bytes per second of all threads over a working set: between the measured ones in proportion to
  // the logarithm of their size, beyond them as at their end.
  double bandwidth(double working_set) const;
  // Operations per second; 0: this machine has no such instruction.
  double peak(cpu::PeakKind kind) const { return cpu::best_peak(limits.peaks, kind, isa); }
};

// Lines of JSON. kCorrupt names the line and what is wrong or missing.
Result<MachineFile> parse_machine(std::string_view text, std::string_view file);

}  // namespace headrace
