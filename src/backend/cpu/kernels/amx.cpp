// The AMX unit: matrix products in tiles. Everything else comes from the units after it.

#include "backend/cpu/kernels/amx/rows.h"

namespace headrace::cpu {

extern const KernelUnit kAmxUnit;
const KernelUnit kAmxUnit = {"amx", kAmxIsa, AmxRows<HardwareTiles>::kRows,
                             AmxRows<HardwareTiles>::kCount};

}  // namespace headrace::cpu
