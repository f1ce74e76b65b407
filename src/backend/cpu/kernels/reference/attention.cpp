// The reference unit: attention, each sum in the order that kernels.h gives.

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/generic/rows.h"
#include "backend/cpu/kernels/reference/kv_codec.h"
#include "backend/cpu/kernels/reference/partial.h"

namespace headrace::cpu {
namespace {

using Sums = Partial<kMaxHeadDim>;

// Row `row` of the tile's run: its query head and positions.
struct Query {
  const float* q;
  float* out;
  int head;
  int64_t lowest;
  int64_t end;
};

Query query_of(const AttentionRowsArgs& args, int64_t row) {
  const int group = args.num_heads / args.num_kv_heads;
  const int head = args.kv_head * group + static_cast<int>(row % group);
  const int64_t offset = row / group * args.row_stride + int64_t{head} * args.head_dim;
  return {args.q + offset, args.out + offset, head, attention_lowest(args, row),
          attention_end(args, row)};
}

const uint8_t* k_plane_of(const AttentionRowsArgs& args, int64_t position) {
  return args.kv_base +
         static_cast<size_t>(args.block_table[position / kKvBlock]) * args.kv_block_stride +
         static_cast<size_t>(args.kv_head) * 2 * kv_plane_bytes(args.kv_type, args.head_dim);
}

// Scores of all positions of a block, each summed in the order of its dimensions.
void block_scores(const AttentionRowsArgs& args, const Query& query, const uint8_t* plane,
                  float* scores) {
  float keys[kMaxHeadDim * kKvBlock];
  codec_of(args.kv_type).load_keys(plane, args.head_dim, keys);
  float dots[kKvBlock] = {};
  for (int64_t d = 0; d < args.head_dim; ++d) {
    for (int s = 0; s < kKvBlock; ++s) dots[s] += query.q[d] * keys[d * kKvBlock + s];
  }
  for (int s = 0; s < kKvBlock; ++s) {
    const float score = dots[s] * load_scale(args.kv_type, plane, args.head_dim, s) * args.scale;
    scores[s] = args.softcap > 0 ? args.softcap * std::tanh(score / args.softcap) : score;
  }
}

// Positions [begin, end) of one step into the partial of their split.
void add_step(const AttentionRowsArgs& args, const Query& query, int64_t begin, int64_t end,
              Sums* partial) {
  float block[kKvBlock];
  float scores[kKvStep];
  float highest = partial->top;
  for (int64_t p = begin; p < end; ++p) {
    if (p == begin || p % kKvBlock == 0) block_scores(args, query, k_plane_of(args, p), block);
    scores[p - begin] = block[p % kKvBlock];
    if (args.slopes != nullptr) {
      scores[p - begin] += args.slopes[query.head] * static_cast<float>(p - (query.end - 1));
    }
    highest = std::max(highest, scores[p - begin]);
  }
  const float correction = std::exp(partial->top - highest);
  partial->top = highest;
  partial->total *= correction;
  for (int64_t d = 0; d < args.head_dim; ++d) partial->acc[d] *= correction;
  const int64_t dims = padded_dim(args.head_dim);
  for (int64_t p = begin; p < end; ++p) {
    const uint8_t* plane = k_plane_of(args, p) + kv_plane_bytes(args.kv_type, args.head_dim);
    const int64_t slot = p % kKvBlock;
    const float weight = std::exp(scores[p - begin] - highest);
    const float scaled = weight * load_scale(args.kv_type, plane, args.head_dim, slot);
    partial->total += weight;
    float value[kMaxHeadDim];
    codec_of(args.kv_type).load_value(plane, dims, slot, value);
    for (int64_t d = 0; d < args.head_dim; ++d) partial->acc[d] += scaled * value[d];
  }
}

Sums run_split(const AttentionRowsArgs& args, const Query& query, int64_t split) {
  Sums partial;
  const int64_t begin = std::max(split * kKvSplit, query.lowest);
  const int64_t end = std::min((split + 1) * kKvSplit, query.end);
  for (int64_t step = begin / kKvStep * kKvStep; step < end; step += kKvStep) {
    add_step(args, query, std::max(step, begin), std::min(step + kKvStep, end), &partial);
  }
  return partial;
}

void write_out(const AttentionRowsArgs& args, const Query& query, Sums sum) {
  if (args.sinks != nullptr) {
    Sums sink;
    sink.top = args.sinks[query.head];
    sink.total = 1.0f;
    sum.fold(sink, args.head_dim);
  }
  for (int64_t d = 0; d < args.head_dim; ++d) query.out[d] = sum.acc[d] / sum.total;
}

// Where the partial of row r of the tile and a split lies: acc, total in 16 lanes, top.
float* partial_at(const AttentionRowsArgs& args, int64_t r, int64_t split) {
  const int64_t first = attention_lowest(args, args.first_row) / kKvSplit;
  return args.partials + ((split - first) * args.num_rows + r) * partial_floats(args.head_dim);
}

void attention(const AttentionRowsArgs& args) {
  for (int64_t r = 0; r < args.num_rows; ++r) {
    const Query query = query_of(args, args.first_row + r);
    const int64_t first = query.lowest / kKvSplit;
    const int64_t last = (query.end - 1) / kKvSplit;
    if (args.work == AttentionWork::kSplit) {
      if (args.split < first || args.split > last) continue;
      run_split(args, query, args.split).write(args.head_dim, partial_at(args, r, args.split));
      continue;
    }
    Sums sum;
    for (int64_t split = first; split <= last; ++split) {
      sum.fold(args.work == AttentionWork::kMerge
                   ? Sums::read(partial_at(args, r, split), args.head_dim)
                   : run_split(args, query, split),
               args.head_dim);
    }
    write_out(args, query, sum);
  }
}

constexpr KernelRow kRows[] = {plain_row(KernelOp::kAttention, "attention", 0,
                                         NumericsClass::kReference, {.attention = &attention})};

}  // namespace

namespace reference {

extern const KernelPart kAttention;
const KernelPart kAttention = {kRows, 1};

}  // namespace reference
}  // namespace headrace::cpu
