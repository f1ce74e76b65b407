#include "amx_model_unit.h"

namespace headrace::cpu {

namespace amx_model {
extern const KernelPart kTilesInt16, kDirectFixed, kTilesFixed, kQuantiseFixed, kTilesBf16;
}  // namespace amx_model

namespace {
constexpr const KernelPart* kParts[] = {&amx_model::kTilesInt16, &amx_model::kDirectFixed,
                                        &amx_model::kTilesFixed, &amx_model::kQuantiseFixed,
                                        &amx_model::kTilesBf16};
}  // namespace

const KernelUnit kAmxModelUnit = {"amx-model", kAvx512VnniUnitIsa, kParts, 5};

}  // namespace headrace::cpu
