#include "backend/cpu/attention.h"

#include <algorithm>

namespace headrace::cpu {
namespace {

static_assert(kKvBlock == kBlockTokens && cpu::kMaxHeadDim == headrace::kMaxHeadDim);

KvDtype kv_dtype(KvType type) { return type == KvType::kF32 ? KvDtype::kF32 : KvDtype::kBF16; }

constexpr int64_t kRowsPerItem = 8;

// Appends rows [first, end) of the batch that lie in the span.
void append_rows(const CpuContext& context, const QkvArgs& args, const SequenceSpan& span,
                 int64_t first, int64_t end) {
  const int64_t begin = std::max<int64_t>(first, span.first_row);
  end = std::min<int64_t>(end, int64_t{span.first_row} + span.num_rows);
  if (begin >= end) return;
  const KvShape& shape = args.kv.shape;
  const int64_t q_width = int64_t{args.num_heads} * shape.head_dim;
  const int64_t row_width = q_width + int64_t{2} * shape.num_kv_heads * shape.head_dim;
  const int64_t half = args.rope_dims / 2;
  QkvRowsArgs rows{};
  rows.qkv = args.qkv + begin * row_width;
  rows.q_out = args.q_out + begin * q_width;
  rows.num_rows = end - begin;
  rows.num_heads = args.num_heads;
  rows.num_kv_heads = shape.num_kv_heads;
  rows.head_dim = shape.head_dim;
  rows.kv_type = kv_dtype(shape.type);
  rows.kv_base = reinterpret_cast<uint8_t*>(args.kv.base);
  rows.kv_block_stride = args.kv.block_stride;
  rows.first_position = span.first_position + (begin - span.first_row);
  rows.block_table = span.block_table;
  rows.q_norm = args.qk_norm == QkNorm::kNone ? nullptr : args.q_norm_weight;
  rows.k_norm = args.qk_norm == QkNorm::kNone ? nullptr : args.k_norm_weight;
  rows.norm_whole = args.qk_norm == QkNorm::kWhole;
  rows.norm_eps = args.norm_eps;
  rows.rope_interleaved = args.pairing == RopePairing::kInterleaved;
  rows.rope_dims = args.rope_dims;
  rows.rope_cos = args.rope_dims == 0 ? nullptr : args.rope_cos + begin * half;
  rows.rope_sin = args.rope_dims == 0 ? nullptr : args.rope_sin + begin * half;
  rows.q_row_scale = args.q_row_scale == nullptr ? nullptr : args.q_row_scale + begin;
  context.kernels.qkv->function.qkv(rows);
}

// A piece of work: a few rows of one span and the query heads [first_head, end_head).
struct Piece {
  const SequenceSpan* span;
  int64_t first;  // row within the span
  int64_t count;
  int first_head;
  int end_head;
};

void attend_piece(const CpuContext& context, const AttentionArgs& args, const Piece& piece,
                  float* scratch) {
  const KvShape& shape = args.kv.shape;
  AttentionRowsArgs rows{};
  rows.row_stride = int64_t{args.num_heads} * shape.head_dim;
  const int64_t offset = (piece.span->first_row + piece.first) * rows.row_stride;
  rows.q = args.q + offset;
  rows.out = args.out + offset;
  rows.num_rows = piece.count;
  rows.first_position = piece.span->first_position + piece.first;
  rows.num_heads = args.num_heads;
  rows.num_kv_heads = shape.num_kv_heads;
  rows.head_dim = shape.head_dim;
  rows.first_head = piece.first_head;
  rows.end_head = piece.end_head;
  rows.kv_type = kv_dtype(shape.type);
  rows.kv_base = reinterpret_cast<const uint8_t*>(args.kv.base);
  rows.kv_block_stride = args.kv.block_stride;
  rows.block_table = piece.span->block_table;
  rows.scale = args.scale;
  rows.softcap = args.softcap;
  rows.window = args.window;
  rows.sinks = args.sinks;
  rows.scratch = scratch;
  context.kernels.attention->function.attention(rows);
}

// Rows of a piece: few enough to balance, enough that keys are read once for several queries.
constexpr int64_t kPieceRows = 16;

// Pieces are numbered span by span, rows by rows, heads innermost.
class Pieces {
 public:
  Pieces(const AttentionArgs& args, int num_members) : args_(args) {
    int64_t row_pieces = 0;
    for (const SequenceSpan& span : args.spans) row_pieces += pieces_of(span);
    const int kv_heads = args.kv.shape.num_kv_heads;
    // Whole groups read their keys once; single heads only where groups would leave members idle.
    const bool whole_groups = row_pieces * kv_heads >= int64_t{4} * num_members;
    heads_per_piece_ = whole_groups ? args.num_heads / kv_heads : 1;
    pieces_per_row_ = args.num_heads / heads_per_piece_;
    count_ = row_pieces * pieces_per_row_;
  }

  int64_t count() const { return count_; }

  Piece at(int64_t index) const {
    int64_t row_piece = index / pieces_per_row_;
    const SequenceSpan* span = args_.spans.data();
    while (row_piece >= pieces_of(*span)) row_piece -= pieces_of(*span++);
    const int head = static_cast<int>(index % pieces_per_row_) * heads_per_piece_;
    const int64_t first = row_piece * kPieceRows;
    return {span, first, std::min<int64_t>(kPieceRows, span->num_rows - first), head,
            head + heads_per_piece_};
  }

 private:
  static int64_t pieces_of(const SequenceSpan& span) {
    return (span.num_rows + kPieceRows - 1) / kPieceRows;
  }

  const AttentionArgs& args_;
  int heads_per_piece_;
  int pieces_per_row_;
  int64_t count_;
};

}  // namespace

void finish_qkv_rows(const CpuContext& context, const QkvArgs& args, int64_t first, int64_t end) {
  for (const SequenceSpan& span : args.spans) append_rows(context, args, span, first, end);
}

void run_finish_qkv(const CpuContext& context, const QkvArgs& args) {
  const int64_t num_items = (args.num_rows + kRowsPerItem - 1) / kRowsPerItem;
  context.team.run(num_items, [&](int64_t item, int /*member*/) {
    finish_qkv_rows(context, args, item * kRowsPerItem, (item + 1) * kRowsPerItem);
  });
}

void run_attention(const CpuContext& context, const AttentionArgs& args) {
  const Pieces pieces(args, context.team.num_threads());
  context.team.run(pieces.count(), [&](int64_t item, int member) {
    // Later pieces see more keys: largest first balances the end.
    attend_piece(context, args, pieces.at(pieces.count() - 1 - item),
                 context.workspace.member(member).attention);
  });
}

}  // namespace headrace::cpu
