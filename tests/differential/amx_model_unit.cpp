// The AMX unit's kernels over the model of the tile instructions; otherwise the same source.

#include "amx_model_unit.h"

#include "backend/cpu/kernels/amx/rows.h"
#include "tile_model.h"

namespace headrace::cpu {

const KernelUnit kAmxModelUnit = {"amx-model", Avx512::kIsa, AmxRows<ModelTiles>::kRows,
                                  AmxRows<ModelTiles>::kCount};

}  // namespace headrace::cpu
