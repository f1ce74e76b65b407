// Verification of kernels on this processor: every row against float64, rows of one numerics class
// against each other bit for bit.
//
// Each problem runs with its operands ending at an unreadable page and then beginning behind one,
// inputs read-only, outputs and paddings full of NaN; once as one call, once in parts. A fault is a
// failed case of its row. One thread; not while another thread verifies (signal handlers).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/verify/problem.h"

namespace headrace::cpu {

struct UnitRow {
  const KernelUnit* unit;
  const KernelRow* row;
};

struct RowReport {
  UnitRow at;
  int64_t num_cases = 0;
  int64_t num_failures = 0;
  double worst = 0;           // largest error, as a share of its tolerance
  std::string first_failure;  // problem and reason

  bool passed() const { return num_cases > 0 && num_failures == 0; }
};

// All rows of the units that a processor with these IsaBits can run.
std::vector<UnitRow> runnable_rows(std::span<const KernelUnit* const> units, uint32_t available);

// One report per row, in their order.
enum class Stop : uint8_t { kNever, kAtFailure };  // rows with the same problems stop together
std::vector<RowReport> verify_rows(std::span<const UnitRow> rows, Depth depth,
                                   Stop stop = Stop::kNever);

}  // namespace headrace::cpu
