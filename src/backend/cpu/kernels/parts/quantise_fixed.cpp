// Activations as fixed-point numbers.

#include "backend/cpu/kernels/amx/fixed_quantise.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {

constexpr KernelRow kRows[] = {quantise_row(ActivationType::kFixed, "quantise_fixed", kAmxUnitIsa,
                                            NumericsClass::kFixed, &quantise_fixed)};

extern const KernelPart kQuantiseFixed;
const KernelPart kQuantiseFixed = {kRows, 1};

}  // namespace headrace::cpu::HEADRACE_UNIT
