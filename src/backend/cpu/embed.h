// Rows of an embedding table.
#pragma once

#include <span>

#include "backend/cpu/context.h"
#include "backend/cpu/kernels/pack.h"

namespace headrace::cpu {

// out[i] = scale * row ids[i] of the table (+ addend[i]); every id is one of its rows.
void run_embed(const CpuContext& context, const CpuWeight& table, std::span<const int32_t> ids,
               float scale, const float* addend, float* out);

}  // namespace headrace::cpu
