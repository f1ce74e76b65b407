// The AVX2 unit (with FMA and F16C): 16 lanes are a pair of registers.

#include "backend/cpu/kernels/generic/lanes_avx2.h"
#include "backend/cpu/kernels/generic/rows.h"

namespace headrace::cpu {

extern const KernelUnit kAvx2Unit;
const KernelUnit kAvx2Unit = {"avx2", Avx2::kIsa, UnitRows<Avx2>::kTable.rows,
                              UnitRows<Avx2>::kCount};

}  // namespace headrace::cpu
