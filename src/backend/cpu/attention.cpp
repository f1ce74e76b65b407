#include "backend/cpu/attention.h"

#include <algorithm>
#include <iterator>

#include "backend/cpu/norm.h"
#include "backend/device_access.h"

namespace headrace::cpu {
namespace {

static_assert(kKvBlock == kBlockTokens && cpu::kMaxHeadDim == headrace::kMaxHeadDim);

// By KvType.
constexpr KvDtype kKvDtypes[] = {KvDtype::kF32, KvDtype::kBF16, KvDtype::kF16,
                                 KvDtype::kFp8, KvDtype::kInt8, KvDtype::kInt16};
static_assert(std::size(kKvDtypes) == kNumKvTypes && kNumKvTypes == kNumKvDtypes);

AttentionShape shape_of(const AttentionArgs& args) {
  return {args.num_heads, args.kv.shape.num_kv_heads, args.kv.shape.head_dim, args.window,
          kAttentionRows};
}

// The items of one attention.
class AttentionItems {
 public:
  AttentionItems(const CpuContext& context, const AttentionArgs& args)
      : context_(context),
        args_(args),
        plan_(static_cast<const CpuStep&>(*args.step).attention(shape_of(args))) {}

  int64_t num_items() const { return plan_.num_items(); }

  void run(int64_t item, int member) const {
    if (!plan_.is_serial()) return run_item(item, member);
    const int64_t num_tiles = std::ssize(plan_.tiles());
    for (int64_t i = 0; i < num_tiles; ++i) {
      const AttentionItem next{i + 1};
      run_tile({i}, {AttentionWork::kWhole}, member, i + 1 < num_tiles ? &next : nullptr);
    }
  }

 private:
  struct TileWork {
    AttentionWork work;
    int64_t split = 0;
    float* partials = nullptr;
  };

  // Members take items in order.
  void run_item(int64_t index, int member) const {
    const AttentionItem& item = plan_.item(index);
    const bool is_last = index + 1 == plan_.num_items();
    const AttentionItem* next = is_last ? nullptr : &plan_.item(index + 1);
    if (item.cut == AttentionItem::kWhole) {
      return run_tile(item, {AttentionWork::kWhole}, member, next);
    }
    float* partials = context_.workspace.attention_partials().data() + plan_.offset_of(item.cut);
    run_tile(item, {AttentionWork::kSplit, item.split, partials}, member, next);
    if (!plan_.finish_split(item.cut)) return;
    run_tile(item, {AttentionWork::kMerge, 0, partials}, member, nullptr);
  }

  const AttentionTile& tile_of(const AttentionItem& item) const {
    return plan_.tiles()[static_cast<size_t>(item.tile)];
  }

  void run_tile(const AttentionItem& item, const TileWork& work, int member,
                const AttentionItem* next) const {
    const AttentionTile& tile = tile_of(item);
    const KvShape& shape = args_.kv.shape;
    AttentionRowsArgs rows{};
    rows.work = work.work;
    rows.row_stride = int64_t{args_.num_heads} * shape.head_dim;
    rows.q = raw(args_.q) + tile.span->first_row * rows.row_stride;
    rows.out = raw(args_.out) + tile.span->first_row * rows.row_stride;
    rows.first_position = tile.span->first_position;
    rows.first_row = tile.first_row;
    rows.num_rows = tile.num_rows;
    rows.num_heads = args_.num_heads;
    rows.num_kv_heads = shape.num_kv_heads;
    rows.head_dim = shape.head_dim;
    rows.kv_head = tile.kv_head;
    rows.kv_type = kv_dtype(shape.type);
    rows.kv_base = reinterpret_cast<const uint8_t*>(raw(args_.kv.base));
    rows.kv_block_stride = args_.kv.block_stride;
    rows.block_table = tile.span->tables[args_.kv.table];
    rows.scale = args_.scale;
    rows.softcap = args_.softcap;
    rows.window = args_.window;
    rows.sinks = raw(args_.sinks);
    rows.slopes = raw(args_.slopes);
    rows.split = work.split;
    rows.partials = work.partials;
    rows.scratch = context_.workspace.member(member).attention;
    if (next != nullptr) find_following(*next, rows.following);
    context_.kernels.attention_of(rows.kv_type).function.attention(rows);
  }

  // Keys of the first step of an item.
  void find_following(const AttentionItem& item, const uint8_t** following) const {
    const AttentionTile& tile = tile_of(item);
    const KvShape& shape = args_.kv.shape;
    const size_t head_bytes = 2 * kv_plane_bytes(kv_dtype(shape.type), shape.head_dim);
    const uint8_t* head = reinterpret_cast<const uint8_t*>(raw(args_.kv.base)) +
                          static_cast<size_t>(tile.kv_head) * head_bytes;
    const int32_t* table = tile.span->tables[args_.kv.table];
    const auto [begin, end] = plan_.positions_of(item);
    const int64_t limit = std::min((end - 1) / kKvBlock + 1, (begin / kKvStep + 1) * kStepBlocks);
    for (int64_t block = begin / kKvBlock; block < limit; ++block) {
      const auto place = static_cast<size_t>(table[block]);
      following[block % kStepBlocks] = head + place * args_.kv.block_stride;
    }
  }

  const CpuContext& context_;
  const AttentionArgs& args_;
  const AttentionPlan& plan_;
};

}  // namespace

KvDtype kv_dtype(KvType type) { return kKvDtypes[static_cast<size_t>(type)]; }

void QkvAppend::run(int64_t item) const {
  for (const AppendItem& rows : step_.appends_of(item)) append(rows);
}

void QkvAppend::append(const AppendItem& item) const {
  const QkvArgs& args = args_;
  const Span& span = *item.span;
  const int64_t begin = item.first_row;
  const KvShape& shape = args.kv.shape;
  const int64_t q_width = int64_t{args.num_heads} * shape.head_dim;
  const int64_t row_width =
      q_width + int64_t{args.kv_parts} * shape.num_kv_heads * shape.head_dim + args.num_others;
  const int64_t half = args.rope_dims / 2;
  QkvRowsArgs rows{};
  rows.qkv = raw(args.qkv) + begin * row_width;
  rows.qkv_stride = row_width;
  rows.q_out = raw(args.q_out) + begin * q_width;
  rows.num_rows = item.end_row - begin;
  rows.num_heads = args.num_heads;
  rows.num_kv_heads = shape.num_kv_heads;
  rows.head_dim = shape.head_dim;
  rows.kv_parts = args.kv_parts;
  rows.kv_type = kv_dtype(shape.type);
  rows.kv_base = reinterpret_cast<uint8_t*>(raw(args.kv.base));
  rows.kv_block_stride = args.kv.block_stride;
  rows.first_position = span.first_position + (begin - span.first_row);
  rows.block_table = span.tables[args.kv.table];
  rows.q_norm = args.qk_norm == QkNorm::kNone ? nullptr : raw(args.q_norm_weight);
  rows.k_norm = args.qk_norm == QkNorm::kNone ? nullptr : raw(args.k_norm_weight);
  rows.norm_whole = args.qk_norm == QkNorm::kWhole;
  rows.norm_v = args.value_norm;
  rows.norm_layer = args.qk_norm == QkNorm::kLayerPerHead;
  rows.norm_after_rope = args.norm_after_rope;
  rows.norm_eps = args.norm_eps;
  rows.clip = args.clip;
  rows.rope_interleaved = args.pairing == RopePairing::kInterleaved;
  rows.rope_dims = args.rope_dims;
  rows.rope_cos = args.rope_dims == 0 ? nullptr : raw(args.rope_cos) + begin * half;
  rows.rope_sin = args.rope_dims == 0 ? nullptr : raw(args.rope_sin) + begin * half;
  rows.q_row_scale = args.q_row_scale ? raw(args.q_row_scale) + begin : nullptr;
  context_.kernels.qkv->function.qkv(rows);
}

void run_finish_qkv(const CpuContext& context, const QkvArgs& args) {
  const QkvAppend append(context, args);
  context.team.run(append.num_items(), [&](int64_t item, int /*member*/) { append.run(item); });
}

namespace {

// out *= sigmoid(gate)
void apply_gate(const CpuContext& context, const AttentionArgs& args, int64_t row) {
  const int64_t width = int64_t{args.num_heads} * args.kv.shape.head_dim;
  GateArgs gate{};
  gate.gate = raw(args.gate) + row * args.gate_stride;
  gate.up = gate.out = raw(args.out) + row * width;
  gate.num_rows = 1;
  gate.num_outputs = width;
  gate.kind = GateKind::kSigmoid;
  context.kernels.gate->function.gate(gate);
}

}  // namespace

void run_attention(const CpuContext& context, const AttentionArgs& args) {
  const AttentionItems items(context, args);
  const auto attend = [&](int64_t item, int member) { items.run(item, member); };
  if (!args.gate) return context.team.run(items.num_items(), attend);
  const RowItems rows(static_cast<const CpuStep&>(*args.step).num_rows());
  const auto finish = [&](int64_t item, int /*member*/) {
    for (int64_t row = rows.first(item); row < rows.end(item); ++row) {
      apply_gate(context, args, row);
    }
  };
  context.team.run(Phase{items.num_items(), attend}, Phase{rows.num_items(), finish});
}

}  // namespace headrace::cpu
