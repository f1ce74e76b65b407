// The reference unit: latent attention and the scores of its index, in the order of kernels.h.

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/kv_codec.h"
#include "backend/cpu/kernels/reference/partial.h"

namespace headrace::cpu {
namespace {

using Sums = Partial<kMaxLatentWidth>;

void store_row(const StoreRowArgs& args) {
  const int64_t dims = padded_dim(args.width);
  const float factor = store_scale(args.type, args.plane, args.x, args.width, args.slot);
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t index = args.order == KvOrder::kKeys ? k_index(args.type, d, args.slot)
                                                       : v_index(args.type, dims, d, args.slot);
    store_kv(args.type, args.plane, index, d < args.width ? args.x[d] * factor : 0.0f);
  }
}

// ---- Attention ----------------------------------------------------------------------------------

// One row of a tile and the positions that it sees.
struct LatentQuery {
  const float* q;
  float* out;
  int64_t end;
  const int32_t* kept;  // null: all
};

LatentQuery query_of(const LatentRowsArgs& args, int64_t row) {
  const int32_t* kept =
      args.kept == nullptr ? nullptr : args.kept + row / args.num_heads * args.kept_stride;
  if (kept != nullptr && kept[0] < 0) kept = nullptr;
  return {args.q + row * args.width, args.out + row * args.value_dim, latent_end(args, row), kept};
}

bool sees(const LatentQuery& query, int64_t position) {
  if (position >= query.end) return false;
  return query.kept == nullptr ||
         std::binary_search(query.kept + 1, query.kept + 1 + query.kept[0], position);
}

// The vector at a position as floats, without its scale, which is returned.
float load_vector(const LatentRowsArgs& args, int64_t position, float* vector) {
  const uint8_t* plane = args.kv_base + static_cast<size_t>(args.block_table[position / kKvBlock]) *
                                            args.kv_block_stride;
  const int64_t slot = position % kKvBlock;
  codec_of(args.kv_type).load_value(plane, padded_dim(args.width), slot, vector);
  return load_scale(args.kv_type, plane, args.width, slot);
}

void add_step(const LatentRowsArgs& args, const LatentQuery& query, int64_t step, Sums* partial) {
  float scores[kKvStep];
  float vector[kMaxLatentWidth];
  float highest = partial->top;
  bool any = false;
  for (int64_t p = 0; p < kKvStep; ++p) {
    if (!sees(query, step + p)) continue;
    const float scale = load_vector(args, step + p, vector);
    float dot = 0.0f;
    for (int64_t d = 0; d < args.width; ++d) dot += query.q[d] * vector[d];
    scores[p] = dot * scale * args.scale;
    highest = std::max(highest, scores[p]);
    any = true;
  }
  if (!any) return;
  const float correction = std::exp(partial->top - highest);
  partial->top = highest;
  partial->total *= correction;
  for (int64_t d = 0; d < args.value_dim; ++d) partial->acc[d] *= correction;
  for (int64_t p = 0; p < kKvStep; ++p) {
    if (!sees(query, step + p)) continue;
    const float scale = load_vector(args, step + p, vector);
    const float weight = std::exp(scores[p] - highest);
    partial->total += weight;
    for (int64_t d = 0; d < args.value_dim; ++d) partial->acc[d] += weight * scale * vector[d];
  }
}

Sums run_split(const LatentRowsArgs& args, const LatentQuery& query, int64_t split) {
  Sums partial;
  const int64_t end = std::min((split + 1) * kKvSplit, query.end);
  for (int64_t step = split * kKvSplit; step < end; step += kKvStep) {
    add_step(args, query, step, &partial);
  }
  return partial;
}

void latent(const LatentRowsArgs& args) {
  for (int64_t r = 0; r < args.num_rows; ++r) {
    const LatentQuery query = query_of(args, args.first_row + r);
    const auto partial_at = [&](int64_t split) {
      return args.partials + (split * args.num_rows + r) * partial_floats(args.value_dim);
    };
    if (args.work == AttentionWork::kSplit) {
      run_split(args, query, args.split).write(args.value_dim, partial_at(args.split));
      continue;
    }
    Sums sum;
    for (int64_t split = 0; split * kKvSplit < query.end; ++split) {
      const Sums part = args.work == AttentionWork::kMerge
                            ? Sums::read(partial_at(split), args.value_dim)
                            : run_split(args, query, split);
      if (part.top != -INFINITY) sum.fold(part, args.value_dim);
    }
    for (int64_t d = 0; d < args.value_dim; ++d) query.out[d] = sum.acc[d] / sum.total;
  }
}

// ---- Index scores -------------------------------------------------------------------------------

void index_scores(const IndexRowArgs& args) {
  for (int64_t p = args.step; p < std::min(args.step + kKvStep, args.end); ++p) {
    const uint8_t* plane =
        args.kv_base + static_cast<size_t>(args.block_table[p / kKvBlock]) * args.kv_block_stride;
    float keys[kMaxHeadDim * kKvBlock];
    codec_of(args.kv_type).load_keys(plane, args.dim, keys);
    const float scale = load_scale(args.kv_type, plane, args.dim, p % kKvBlock) * args.scale;
    float sum = 0.0f;
    for (int h = 0; h < args.num_heads; ++h) {
      float dot = 0.0f;
      for (int64_t d = 0; d < args.dim; ++d) {
        dot += args.q[h * args.dim + d] * keys[d * kKvBlock + p % kKvBlock];
      }
      sum += args.weights[h] * std::max(0.0f, dot * scale);
    }
    args.scores[p - args.step] = sum;
  }
}

constexpr KernelRow kRows[] = {
    plain_row(KernelOp::kStoreRow, "store", 0, NumericsClass::kReference,
              {.store_row = &store_row}),
    plain_row(KernelOp::kLatent, "latent", 0, NumericsClass::kReference, {.latent = &latent}),
    plain_row(KernelOp::kIndex, "index", 0, NumericsClass::kReference, {.index = &index_scores}),
};

}  // namespace

namespace reference {

extern const KernelPart kLatent;
const KernelPart kLatent = {kRows, 3};

}  // namespace reference
}  // namespace headrace::cpu
