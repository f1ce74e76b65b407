#include "backend/cpu/attention.h"

#include <algorithm>
#include <iterator>

#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

static_assert(kKvBlock == kBlockTokens && cpu::kMaxHeadDim == headrace::kMaxHeadDim);

// By KvType.
constexpr KvDtype kKvDtypes[] = {KvDtype::kF32, KvDtype::kBF16, KvDtype::kF16, KvDtype::kFp8,
                                 KvDtype::kInt8};
static_assert(std::size(kKvDtypes) == kNumKvTypes && kNumKvTypes == kNumKvDtypes);

// Appends of so few rows are one item.
constexpr int64_t kFewRows = 8;
// Items per member that keep the end of an op even.
constexpr int64_t kItemsPerMember = 4;
// Tiles are not made smaller than this to have more of them: each expands its keys again.
constexpr int64_t kMinTileRows = 12;
// Cost of a tile is in rows times steps; expanding a step costs about as much as this many rows.
constexpr int64_t kStepRows = 4;
// Cost times dimensions that one member does in about the time a join takes.
constexpr int64_t kSerialCost = 8192;

// Index of the last entry of `firsts` that is <= value: which span an item belongs to.
size_t span_of(const std::vector<int64_t>& firsts, int64_t value) {
  return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), value) -
                             firsts.begin() - 1);
}

// Appends rows [begin, end) of the batch, which lie in the span.
void append_rows(const CpuContext& context, const QkvArgs& args, const Span& span, int64_t begin,
                 int64_t end) {
  const KvShape& shape = args.kv.shape;
  const int64_t q_width = int64_t{args.num_heads} * shape.head_dim;
  const int64_t row_width = q_width + int64_t{2} * shape.num_kv_heads * shape.head_dim;
  const int64_t half = args.rope_dims / 2;
  QkvRowsArgs rows{};
  rows.qkv = raw(args.qkv) + begin * row_width;
  rows.q_out = raw(args.q_out) + begin * q_width;
  rows.num_rows = end - begin;
  rows.num_heads = args.num_heads;
  rows.num_kv_heads = shape.num_kv_heads;
  rows.head_dim = shape.head_dim;
  rows.kv_type = kv_dtype(shape.type);
  rows.kv_base = reinterpret_cast<uint8_t*>(raw(args.kv.base));
  rows.kv_block_stride = args.kv.block_stride;
  rows.first_position = span.first_position + (begin - span.first_row);
  rows.block_table = span.tables[args.kv.table];
  rows.q_norm = args.qk_norm == QkNorm::kNone ? nullptr : raw(args.q_norm_weight);
  rows.k_norm = args.qk_norm == QkNorm::kNone ? nullptr : raw(args.k_norm_weight);
  rows.norm_whole = args.qk_norm == QkNorm::kWhole;
  rows.norm_eps = args.norm_eps;
  rows.rope_interleaved = args.pairing == RopePairing::kInterleaved;
  rows.rope_dims = args.rope_dims;
  rows.rope_cos = args.rope_dims == 0 ? nullptr : raw(args.rope_cos) + begin * half;
  rows.rope_sin = args.rope_dims == 0 ? nullptr : raw(args.rope_sin) + begin * half;
  rows.q_row_scale = args.q_row_scale ? raw(args.q_row_scale) + begin : nullptr;
  context.kernels.qkv->function.qkv(rows);
}

int64_t blocks_of(const Span& span) {
  if (span.num_rows == 0) return 0;
  const int64_t end = span.first_position + span.num_rows;
  return divide_up(end, kKvBlock) - span.first_position / kKvBlock;
}

}  // namespace

KvDtype kv_dtype(KvType type) { return kKvDtypes[static_cast<size_t>(type)]; }

QkvPlan::QkvPlan(const CpuContext& context, const QkvArgs& args) : context_(context), args_(args) {
  std::vector<int64_t>& firsts = context.workspace.attention().first_block;
  firsts.clear();
  for (const Span& span : args.spans) {
    firsts.push_back(num_blocks_);
    num_blocks_ += blocks_of(span);
  }
  num_items_ = args.num_rows <= kFewRows ? std::min<int64_t>(1, num_blocks_) : num_blocks_;
}

void QkvPlan::run(int64_t item) const {
  if (num_items_ == num_blocks_) return append(item);
  for (int64_t block = 0; block < num_blocks_; ++block) append(block);
}

void QkvPlan::append(int64_t block) const {
  const std::vector<int64_t>& firsts = context_.workspace.attention().first_block;
  const size_t index = span_of(firsts, block);
  const Span& span = args_.spans[index];
  const int64_t position =
      (span.first_position / kKvBlock + block - firsts[index]) * int64_t{kKvBlock};
  const int64_t begin = std::max<int64_t>(0, position - span.first_position);
  const int64_t end = std::min<int64_t>(span.num_rows, position + kKvBlock - span.first_position);
  append_rows(context_, args_, span, span.first_row + begin, span.first_row + end);
}

AttentionPlan::AttentionPlan(const CpuContext& context, const AttentionArgs& args)
    : context_(context),
      args_(args),
      space_(context.workspace.attention()),
      group_(args.num_heads / args.kv.shape.num_kv_heads) {
  choose_tile_rows();
  space_.first_tile.clear();
  for (const Span& span : args.spans) {
    space_.first_tile.push_back(num_tiles_);
    num_tiles_ += tiles_of(span);
  }
  space_.cuts.clear();
  int64_t total = 0;
  for (int64_t i = 0; i < num_tiles_; ++i) total += cost_of(tile_at(i));
  const int64_t members = context.team.num_threads();
  serial_ = members == 1 || total * args.kv.shape.head_dim < kSerialCost;
  if (!serial_) cut_tiles(total / (kItemsPerMember * members));
  num_items_ = num_split_items_ + num_tiles_ - static_cast<int64_t>(space_.cuts.size());
  if (serial_) num_items_ = std::min<int64_t>(1, num_tiles_);
}

int64_t AttentionPlan::tiles_of(const Span& span) const {
  return divide_up(int64_t{span.num_rows} * group_, tile_rows_) * args_.kv.shape.num_kv_heads;
}

// Smaller tiles where even cutting all of them would give too few items.
void AttentionPlan::choose_tile_rows() {
  const int64_t wanted = kItemsPerMember * context_.team.num_threads();
  for (; tile_rows_ > kMinTileRows; tile_rows_ /= 2) {
    int64_t items = 0;
    for (const Span& span : args_.spans) {
      const int64_t end = span.first_position + span.num_rows;
      const int64_t lowest = args_.window > 0 ? std::max<int64_t>(0, end - args_.window) : 0;
      items += tiles_of(span) * divide_up(end - lowest, kKvSplit);
    }
    if (items >= wanted) return;
  }
}

// Tiles are numbered span by span, rows by rows, KV heads innermost.
AttentionPlan::Tile AttentionPlan::tile_at(int64_t index) const {
  const size_t span_index = span_of(space_.first_tile, index);
  const Span& span = args_.spans[span_index];
  const int64_t in_span = index - space_.first_tile[span_index];
  const int kv_heads = args_.kv.shape.num_kv_heads;
  const int64_t first = in_span / kv_heads * tile_rows_;
  return {&span, first, std::min(tile_rows_, span.num_rows * group_ - first),
          static_cast<int>(in_span % kv_heads)};
}

int64_t AttentionPlan::first_visible(const Tile& tile) const {
  const int64_t end = tile.span->first_position + tile.first_row / group_ + 1;
  return args_.window > 0 ? std::max<int64_t>(0, end - args_.window) : 0;
}

int64_t AttentionPlan::end_visible(const Tile& tile) const {
  return tile.span->first_position + (tile.first_row + tile.num_rows - 1) / group_ + 1;
}

int64_t AttentionPlan::num_splits(const Tile& tile) const {
  return (end_visible(tile) - 1) / kKvSplit + 1 - first_visible(tile) / kKvSplit;
}

int64_t AttentionPlan::cost_of(const Tile& tile) const {
  const int64_t steps = (end_visible(tile) - 1) / kKvStep + 1 - first_visible(tile) / kKvStep;
  return steps * (tile.num_rows + kStepRows);
}

// Cuts tiles that cost more than `limit`, as far as the space for partials goes.
void AttentionPlan::cut_tiles(int64_t limit) {
  const int64_t capacity = static_cast<int64_t>(space_.partials.size() / sizeof(float));
  int64_t offset = 0;
  for (int64_t i = 0; i < num_tiles_; ++i) {
    const Tile tile = tile_at(i);
    const int64_t splits = num_splits(tile);
    if (splits == 1 || cost_of(tile) <= limit) continue;
    const int64_t size = splits * tile.num_rows * partial_floats(args_.kv.shape.head_dim);
    if (offset + size > capacity || space_.cuts.size() == space_.cuts.capacity()) continue;
    space_.remaining[space_.cuts.size()].store(static_cast<int32_t>(splits),
                                               std::memory_order_relaxed);
    space_.cuts.push_back({i, num_split_items_, offset});
    num_split_items_ += splits;
    offset += size;
  }
}

void AttentionPlan::run(int64_t item, int member) const {
  if (serial_) {
    for (int64_t i = 0; i < num_tiles_; ++i) run_tile(tile_at(i), {AttentionWork::kWhole}, member);
    return;
  }
  if (item < num_split_items_) return run_split(item, member);
  // Later tiles see more keys: largest first balances the end.
  int64_t tile = num_items_ - 1 - item;
  for (const AttentionCut& cut : space_.cuts) tile += cut.tile <= tile ? 1 : 0;
  run_tile(tile_at(tile), {AttentionWork::kWhole}, member);
}

void AttentionPlan::run_split(int64_t item, int member) const {
  size_t index = space_.cuts.size() - 1;
  while (space_.cuts[index].first_item > item) --index;
  const AttentionCut& cut = space_.cuts[index];
  const Tile tile = tile_at(cut.tile);
  float* partials = space_.partials.as<float>().data() + cut.offset;
  const int64_t split = first_visible(tile) / kKvSplit + item - cut.first_item;
  run_tile(tile, {AttentionWork::kSplit, split, partials}, member);
  if (space_.remaining[index].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  run_tile(tile, {AttentionWork::kMerge, 0, partials}, member);
}

void AttentionPlan::run_tile(const Tile& tile, const TileWork& work, int member) const {
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
  rows.split = work.split;
  rows.partials = work.partials;
  rows.scratch = context_.workspace.member(member).attention;
  context_.kernels.attention->function.attention(rows);
}

void run_finish_qkv(const CpuContext& context, const QkvArgs& args) {
  const QkvPlan plan(context, args);
  context.team.run(plan.num_items(), [&](int64_t item, int /*member*/) { plan.run(item); });
}

void run_attention(const CpuContext& context, const AttentionArgs& args) {
  const AttentionPlan plan(context, args);
  context.team.run(plan.num_items(), [&](int64_t item, int member) { plan.run(item, member); });
}

}  // namespace headrace::cpu
