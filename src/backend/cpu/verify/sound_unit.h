// Which unit a back end may trust: kernels are tried on this processor before they are used.
//
// Thread-safe, but for the first question about a unit: see row_reports.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/kernels/registry.h"

namespace headrace::cpu {

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
