#include "amx_model_unit.h"

namespace headrace::cpu {

namespace amx_model {
extern const KernelPart kTilesInt16, kDirectFixed, kTilesFixed, kQuantiseFixed, kTilesBf16,
    kTilesBf16Codes, kQuantiseBf16Codes, kTilesAttention;
}  // namespace amx_model

namespace {
constexpr const KernelPart* kParts[] = {&amx_model::kTilesBf16Codes, &amx_model::kQuantiseBf16Codes,
                                        &amx_model::kDirectFixed,    &amx_model::kTilesFixed,
                                        &amx_model::kQuantiseFixed,  &amx_model::kTilesBf16,
                                        &amx_model::kTilesAttention};
constexpr const KernelPart* kIntegerParts[] = {&amx_model::kTilesInt16};
}  // namespace

const KernelUnit kAmxModelUnit = {"amx-model", HEADRACE_AMX_MODEL_ISA, kParts, 7};
const KernelUnit kAmxIntegerModelUnit = {"amx_integer-model", HEADRACE_AMX_MODEL_ISA, kIntegerParts,
                                         1};

}  // namespace headrace::cpu
