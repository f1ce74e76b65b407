#include "amx_model_unit.h"

namespace headrace::cpu {

namespace amx_model {
extern const KernelPart kTilesInt16, kTilesInt8, kTilesBf16;
}  // namespace amx_model

namespace {
constexpr const KernelPart* kParts[] = {&amx_model::kTilesInt16, &amx_model::kTilesInt8,
                                        &amx_model::kTilesBf16};
}  // namespace

const KernelUnit kAmxModelUnit = {"amx-model", kAvx512UnitIsa, kParts, 3};

}  // namespace headrace::cpu
