// Activations as bf16 in the order of codes, for the processors that multiply these so.

#include "backend/cpu/kernels/generic/bf16_quantise.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu::HEADRACE_UNIT {

constexpr KernelRow kRows[] = {quantise_row(ActivationType::kBF16Codes, "quantise_bf16_codes",
                                            kAmxUnitIsa | kIsaAvx512Fp16, NumericsClass::kBf16Codes,
                                            &quantise_bf16<ActivationType::kBF16Codes>)};

extern const KernelPart kQuantiseBf16Codes;
const KernelPart kQuantiseBf16Codes = {kRows, 1};

}  // namespace headrace::cpu::HEADRACE_UNIT
