#include "backend/cpu/step_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr size_t kUsualSpans = 256;
constexpr size_t kUsualTiles = 1024;
constexpr size_t kUsualShapes = 4;
constexpr int64_t kCutsPerMember = 4;
// Appends of so few rows are one item.
constexpr int64_t kFewRows = 8;
// Items per member that keep the end of an op even.
constexpr int64_t kRunsPerMember = 4;
// Tiles are not made smaller than this to have more of them: each expands its keys again.
constexpr int64_t kMinRunRows = 12;
// Cost of a tile is in rows times steps; expanding a step costs about as much as this many rows.
constexpr int64_t kStepRows = 4;
// Cost times dimensions that one member does in about the time a join takes.
constexpr int64_t kSerialCost = 8192;

}  // namespace

// ---- AttentionPlan ------------------------------------------------------------------------------

AttentionPlan::AttentionPlan(int num_members, size_t partial_floats)
    : num_members_(num_members), partial_floats_(static_cast<int64_t>(partial_floats)) {
  tiles_.reserve(kUsualTiles);
  items_.reserve(2 * kUsualTiles);
  is_cut_.reserve(kUsualTiles);
  cuts_.reserve(static_cast<size_t>(kCutsPerMember * num_members_));
  remaining_ = std::make_unique<std::atomic<int64_t>[]>(cuts_.capacity());
}

void AttentionPlan::make(std::span<const Span> spans, const AttentionShape& shape) {
  shape_ = shape;
  group_ = shape.num_heads / shape.num_kv_heads;
  tiles_.clear();
  items_.clear();
  cuts_.clear();
  used_floats_ = 0;
  choose_tile_rows(spans);
  for (const Span& span : spans) add_tiles(span);
  int64_t total = 0;
  for (const AttentionTile& tile : tiles_) total += cost_of(tile);
  serial_ = num_members_ == 1 || total * shape.head_dim < kSerialCost;
  if (!serial_) return add_items(total / (kRunsPerMember * num_members_));
  if (!tiles_.empty()) items_.push_back({.tile = 0});
}

// Smaller tiles where even cutting all of them would give too few items.
void AttentionPlan::choose_tile_rows(std::span<const Span> spans) {
  const int64_t wanted = kRunsPerMember * num_members_;
  for (tile_rows_ = shape_.most_rows; tile_rows_ > kMinRunRows; tile_rows_ /= 2) {
    int64_t items = 0;
    for (const Span& span : spans) {
      const int64_t end = span.first_position + span.num_rows;
      const int64_t lowest = shape_.window > 0 ? std::max<int64_t>(0, end - shape_.window) : 0;
      items += tiles_of(span) * divide_up(end - lowest, kKvSplit);
    }
    if (items >= wanted) return;
  }
}

int64_t AttentionPlan::tiles_of(const Span& span) const {
  return divide_up(int64_t{span.num_rows} * group_, tile_rows_) * shape_.num_kv_heads;
}

// Rows by rows, KV heads innermost.
void AttentionPlan::add_tiles(const Span& span) {
  const int64_t num_rows = span.num_rows * group_;
  for (int64_t first = 0; first < num_rows; first += tile_rows_) {
    for (int kv_head = 0; kv_head < shape_.num_kv_heads; ++kv_head) {
      tiles_.push_back({&span, first, std::min(tile_rows_, num_rows - first), kv_head});
    }
  }
}

// The splits of tiles that cost more than `limit`, then whole tiles. Of each member's share, which
// are the rows that it has in other ops, later ones first: they see more keys, and the largest
// first balances the end.
void AttentionPlan::add_items(int64_t limit) {
  is_cut_.assign(tiles_.size(), false);
  for (size_t i = 0; i < tiles_.size(); ++i) {
    is_cut_[i] = cut_tile(static_cast<int64_t>(i), limit);
  }
  const auto num_tiles = std::ssize(tiles_);
  for (int64_t share = 0; share < num_members_; ++share) {
    const int64_t first = num_tiles * share / num_members_;
    for (int64_t i = num_tiles * (share + 1) / num_members_; i-- > first;) {
      if (!is_cut_[static_cast<size_t>(i)]) items_.push_back({.tile = i});
    }
  }
}

// As far as the space for partial results goes.
bool AttentionPlan::cut_tile(int64_t tile_idx, int64_t limit) {
  const AttentionTile& tile = tiles_[static_cast<size_t>(tile_idx)];
  const int64_t splits = num_splits(tile);
  if (splits == 1 || cost_of(tile) <= limit) return false;
  const int64_t size = splits * tile.num_rows * partial_floats(shape_.head_dim);
  if (used_floats_ + size > partial_floats_ || cuts_.size() == cuts_.capacity()) return false;
  const int64_t cut = std::ssize(cuts_);
  const int64_t first_split = first_visible(tile) / kKvSplit;
  for (int64_t i = 0; i < splits; ++i) items_.push_back({tile_idx, cut, first_split + i});
  remaining_[static_cast<size_t>(cut)].store(splits, std::memory_order_relaxed);
  cuts_.push_back({splits, used_floats_});
  used_floats_ += size;
  return true;
}

bool AttentionPlan::finish_split(int64_t cut) const {
  std::atomic<int64_t>& remaining = remaining_[static_cast<size_t>(cut)];
  if (remaining.fetch_sub(1, std::memory_order_acq_rel) > 1) return false;
  // For the next layer, which comes after a join.
  remaining.store(cuts_[static_cast<size_t>(cut)].num_splits, std::memory_order_relaxed);
  return true;
}

AttentionPlan::Positions AttentionPlan::positions_of(const AttentionItem& item) const {
  const AttentionTile& tile = tiles_[static_cast<size_t>(item.tile)];
  const Positions all{first_visible(tile), end_visible(tile)};
  if (item.cut == AttentionItem::kWhole) return all;
  return {std::max(all.begin, item.split * kKvSplit),
          std::min(all.end, (item.split + 1) * kKvSplit)};
}

int64_t AttentionPlan::first_visible(const AttentionTile& tile) const {
  const int64_t end = tile.span->first_position + tile.first_row / group_ + 1;
  return shape_.window > 0 ? std::max<int64_t>(0, end - shape_.window) : 0;
}

int64_t AttentionPlan::end_visible(const AttentionTile& tile) const {
  return tile.span->first_position + (tile.first_row + tile.num_rows - 1) / group_ + 1;
}

int64_t AttentionPlan::num_splits(const AttentionTile& tile) const {
  return (end_visible(tile) - 1) / kKvSplit + 1 - first_visible(tile) / kKvSplit;
}

int64_t AttentionPlan::cost_of(const AttentionTile& tile) const {
  const int64_t steps = (end_visible(tile) - 1) / kKvStep + 1 - first_visible(tile) / kKvStep;
  return steps * (tile.num_rows + kStepRows);
}

// ---- CpuStep ------------------------------------------------------------------------------------

CpuStep::CpuStep(int num_members, size_t partial_floats)
    : num_members_(num_members), partial_floats_(partial_floats) {
  spans_.reserve(kUsualSpans);
  appends_.reserve(kUsualTiles);
  runs_.reserve(kUsualTiles);
  for (size_t i = 0; i < kUsualShapes; ++i) {
    plans_.push_back(std::make_unique<AttentionPlan>(num_members_, partial_floats_));
  }
}

void CpuStep::begin(std::span<const Span> spans) {
  spans_.assign(spans.begin(), spans.end());
  appends_.clear();
  runs_.clear();
  num_plans_ = 0;
  num_rows_ = 0;
  for (const Span& span : spans_) {
    CHECK(span.first_row == num_rows_ && span.num_rows >= 0 && span.first_position >= 0,
          "a span of {} rows at {} from position {}, expected at {}", span.num_rows, span.first_row,
          span.first_position, num_rows_);
    num_rows_ += span.num_rows;
    add_appends(span);
    add_runs(span);
  }
}

void CpuStep::add_appends(const Span& span) {
  const int64_t end = span.first_position + span.num_rows;
  for (int64_t position = span.first_position; position < end;) {
    const int64_t next = std::min(end, (position / kKvBlock + 1) * int64_t{kKvBlock});
    const int64_t first_row = span.first_row + position - span.first_position;
    appends_.push_back({&span, first_row, first_row + next - position});
    position = next;
  }
}

void CpuStep::add_runs(const Span& span) {
  const int64_t num_guesses = span.num_ahead(), end = span.num_rows - num_guesses;
  for (int64_t first = 0; first < end; first += kRunRows) {
    runs_.push_back({&span, first, std::min(kRunRows, end - first), 0});
  }
  if (num_guesses > 0) runs_.back().num_guesses = num_guesses;
}

const Span& CpuStep::span_of(int64_t row) const {
  CHECK(row >= 0 && row < num_rows_, "row {} of {}", row, num_rows_);
  const auto after =
      std::upper_bound(spans_.begin(), spans_.end(), row,
                       [](int64_t value, const Span& span) { return value < span.first_row; });
  return *(after - 1);
}

int64_t CpuStep::num_append_items() const {
  const int64_t count = std::ssize(appends_);
  return num_rows_ <= kFewRows ? std::min<int64_t>(1, count) : count;
}

std::span<const AppendItem> CpuStep::appends_of(int64_t item) const {
  if (num_rows_ <= kFewRows) return appends_;
  return std::span(appends_).subspan(static_cast<size_t>(item), 1);
}

const AttentionPlan& CpuStep::attention(const AttentionShape& shape) const {
  for (size_t i = 0; i < num_plans_; ++i) {
    if (plans_[i]->shape() == shape) return *plans_[i];
  }
  if (num_plans_ == plans_.size()) {
    plans_.push_back(std::make_unique<AttentionPlan>(num_members_, partial_floats_));
  }
  AttentionPlan& plan = *plans_[num_plans_++];
  plan.make(spans_, shape);
  return plan;
}

}  // namespace headrace::cpu
