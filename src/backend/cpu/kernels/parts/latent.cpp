// Latent attention: rows of its planes, tiles over them, scores of its index.

#include HEADRACE_LANES_HEADER

#include "backend/cpu/kernels/generic/latent.h"
#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/generic/store_row.h"

namespace headrace::cpu::HEADRACE_UNIT {
namespace {

using F = HEADRACE_LANES;

constexpr KernelRow kRows[] = {
    plain_row(KernelOp::kStoreRow, "store", F::kIsa, NumericsClass::kFma,
              {.store_row = &store_row<F>}),
    plain_row(KernelOp::kLatent, "latent", F::kIsa, NumericsClass::kFma, {.latent = &latent<F>}),
    plain_row(KernelOp::kIndex, "index", F::kIsa, NumericsClass::kFma, {.index = &index_scores<F>}),
};

}  // namespace

extern const KernelPart kLatent;
const KernelPart kLatent = {kRows, static_cast<int>(sizeof(kRows) / sizeof(kRows[0]))};

}  // namespace headrace::cpu::HEADRACE_UNIT
