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

// Why the rows that a back end would take from this unit are not to be trusted here, in one
// sentence; empty if all are right. Depth::kStart: a few milliseconds once, then remembered.
std::string unit_fault(const KernelUnit& unit, uint32_t available, ActivationType activations);

// The first unit that this processor runs and that computes right; logs one line for each that does
// not. `units` are best first; the last is taken as it is: it is the oracle.
const KernelUnit* first_sound_unit(std::span<const KernelUnit* const> units, uint32_t available,
                                   ActivationType activations);

// For a unit asked for by name: kUnsupported with its fault.
Status check_unit(const KernelUnit& unit, uint32_t available, ActivationType activations);

// select_unit, but of units that compute right: "auto" passes over the others, a unit asked for by
// name that does not is kUnsupported.
Result<const KernelUnit*> select_sound_unit(std::string_view name, uint32_t available,
                                            ActivationType activations);

}  // namespace headrace::cpu
