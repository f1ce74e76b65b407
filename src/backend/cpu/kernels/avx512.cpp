// The AVX-512 unit (F, BW, DQ, VL): 16 lanes are one register.

#include "backend/cpu/kernels/generic/lanes_avx512.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {

extern const KernelUnit kAvx512Unit;
const KernelUnit kAvx512Unit = {"avx512", Avx512::kIsa, UnitRows<Avx512>::kTable.rows,
                                UnitRows<Avx512>::kCount};

}  // namespace headrace::cpu
