#include "backend/cpu/norm.h"

#include "backend/device_access.h"

namespace headrace::cpu {

NormRowsArgs norm_rows(const Norm& norm, const float* x, float* out, int64_t width) {
  NormRowsArgs rows{};
  rows.x = x;
  rows.weight = raw(norm.weight);
  rows.out = out;
  rows.num_rows = 1;
  rows.width = width;
  rows.eps = norm.eps;
  rows.scale = 1.0f;
  rows.subtract_mean = norm.kind == NormKind::kLayer;
  rows.bias = raw(norm.bias);
  return rows;
}

void run_norm(const CpuContext& context, const NormArgs& args) {
  const RowItems items(args.num_rows);
  context.team.run(items.num_items(), [&](int64_t item, int /*member*/) {
    const int64_t offset = items.first(item) * args.width;
    const Norm norm{args.kind, args.weight, args.eps, args.bias};
    NormRowsArgs rows = norm_rows(norm, raw(args.x) + offset, raw(args.out) + offset, args.width);
    rows.residual = at_or_null(args.residual, offset);
    rows.num_rows = items.end(item) - items.first(item);
    rows.scale = args.scale;
    rows.gain = raw(args.gain);
    context.kernels.norm->function.norm(rows);
  });
}

}  // namespace headrace::cpu
