#include "backend/cpu/latent.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/attention.h"
#include "backend/cpu/step_plan.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

static_assert(kMaxLatentWidth == kMaxRowWidth && cpu::kMaxIndexHeads == headrace::kMaxIndexHeads);

const CpuStep& step_of(const StepGeometry* step) { return static_cast<const CpuStep&>(*step); }

const uint8_t* bytes_of(const KvPlaneView& view) {
  return reinterpret_cast<const uint8_t*>(raw(view.base));
}

// ---- Rows into planes ---------------------------------------------------------------------------

class RowAppend {
 public:
  RowAppend(const CpuContext& context, const AppendRowArgs& args)
      : context_(context), args_(args), step_(step_of(args.step)) {}

  int64_t num_items() const { return step_.num_append_items(); }

  void run(int64_t item) const {
    for (const AppendItem& rows : step_.appends_of(item)) {
      for (int64_t row = rows.first_row; row < rows.end_row; ++row) {
        store(*rows.span, row);
        for (int h = 0; h < args_.num_heads; ++h) turn_query(row, h);
      }
    }
  }

 private:
  void store(const Span& span, int64_t row) const {
    float x[kMaxLatentWidth];
    const int width = args_.plane.plane.width;
    std::memcpy(x, raw(args_.keys) + row * width, static_cast<size_t>(width) * sizeof(float));
    norm(x);
    rotate(row, x + args_.key_rope);
    const int64_t position = span.first_position + row - span.first_row;
    const auto block = static_cast<size_t>(span.tables[args_.plane.table][position / kKvBlock]);
    StoreRowArgs stored{};
    stored.x = x;
    stored.width = width;
    stored.type = kv_dtype(args_.plane.plane.type);
    stored.order = args_.by_position ? KvOrder::kValues : KvOrder::kKeys;
    stored.slot = position % kKvBlock;
    stored.plane =
        reinterpret_cast<uint8_t*>(raw(args_.plane.base)) + block * args_.plane.block_stride;
    context_.kernels.store_row->function.store_row(stored);
  }

  void norm(float* x) const {
    if (args_.norm_width == 0) return;
    NormRowsArgs rows{};
    rows.x = rows.out = x;
    rows.weight = raw(args_.norm_weight);
    rows.num_rows = 1;
    rows.width = args_.norm_width;
    rows.eps = args_.norm_eps;
    rows.scale = 1.0f;
    rows.subtract_mean = args_.norm == NormKind::kLayer;
    context_.kernels.norm->function.norm(rows);
    if (!args_.norm_bias) return;
    for (int i = 0; i < args_.norm_width; ++i) x[i] += raw(args_.norm_bias)[i];
  }

  void rotate(int64_t row, float* x) const {
    const int half = args_.rope_dims / 2;
    if (half == 0) return;
    const float* cos = raw(args_.rope_cos) + row * half;
    const float* sin = raw(args_.rope_sin) + row * half;
    const bool interleaved = args_.pairing == RopePairing::kInterleaved;
    for (int i = 0; i < half; ++i) {
      float& a = x[interleaved ? 2 * i : i];
      float& b = x[interleaved ? 2 * i + 1 : i + half];
      const float first = a, second = b;
      a = first * cos[i] - second * sin[i];
      b = second * cos[i] + first * sin[i];
    }
  }

  void turn_query(int64_t row, int head) const {
    const int64_t index = row * args_.num_heads + head;
    float* out = raw(args_.q_out) + index * args_.q_out_width + args_.q_out_rope;
    std::memmove(out, raw(args_.q) + index * args_.q_width + args_.q_rope,
                 static_cast<size_t>(args_.q_dims) * sizeof(float));
    rotate(row, out);
  }

  const CpuContext& context_;
  const AppendRowArgs& args_;
  const CpuStep& step_;
};

// ---- Positions that an index keeps --------------------------------------------------------------

struct Candidate {
  float score;
  int32_t position;
};

// Higher scores first, then lower positions; a total order, whatever the numbers.
bool is_better(const Candidate& a, const Candidate& b) {
  const int32_t left = float_order(a.score), right = float_order(b.score);
  return left != right ? left > right : a.position < b.position;
}

// The best of a stream, in room for twice as many.
class BestKeys {
 public:
  BestKeys(Candidate* room, int64_t max_kept) : room_(room), max_kept_(max_kept) {}

  void add(const Candidate& candidate) {
    if (count_ >= max_kept_ && full_ && !is_better(candidate, worst_)) return;
    room_[count_++] = candidate;
    if (count_ == 2 * max_kept_) prune();
  }

  // Their positions in ascending order.
  int64_t finish(int32_t* positions) {
    if (count_ > max_kept_) prune();
    std::sort(room_, room_ + count_,
              [](const Candidate& a, const Candidate& b) { return a.position < b.position; });
    for (int64_t i = 0; i < count_; ++i) positions[i] = room_[i].position;
    return count_;
  }

 private:
  void prune() {
    std::nth_element(room_, room_ + max_kept_ - 1, room_ + count_, is_better);
    worst_ = room_[max_kept_ - 1];
    count_ = max_kept_;
    full_ = true;
  }

  Candidate* room_;
  int64_t max_kept_;
  int64_t count_ = 0;
  bool full_ = false;
  Candidate worst_{};
};

void select_row(const CpuContext& context, const SelectKeysArgs& args, const Span& span,
                int64_t row, int member) {
  int32_t* kept = raw(args.kept) + row * kept_words(args.max_kept);
  const int64_t end = span.first_position + row - span.first_row + 1;
  if (end <= args.max_kept) {
    kept[0] = -1;
    return;
  }
  IndexRowArgs scores{};
  alignas(64) float step_scores[kKvStep];
  scores.num_heads = args.num_heads;
  scores.dim = args.plane.plane.width;
  scores.q = raw(args.q) + row * args.num_heads * scores.dim;
  scores.weights = raw(args.weights) + row * args.num_heads;
  scores.scale = args.scale;
  scores.kv_type = kv_dtype(args.plane.plane.type);
  scores.kv_base = bytes_of(args.plane);
  scores.kv_block_stride = args.plane.block_stride;
  scores.block_table = span.tables[args.plane.table];
  scores.end = end;
  scores.scores = step_scores;
  scores.scratch = context.workspace.member(member).attention;
  BestKeys best(reinterpret_cast<Candidate*>(kept + 1), args.max_kept);
  for (scores.step = 0; scores.step < end; scores.step += kKvStep) {
    context.kernels.index->function.index(scores);
    const int64_t count = std::min<int64_t>(kKvStep, end - scores.step);
    for (int64_t p = 0; p < count; ++p) {
      best.add({step_scores[p], static_cast<int32_t>(scores.step + p)});
    }
  }
  kept[0] = static_cast<int32_t>(best.finish(kept + 1));
}

// ---- Attention ----------------------------------------------------------------------------------

class LatentItems {
 public:
  LatentItems(const CpuContext& context, const LatentAttentionArgs& args)
      : context_(context),
        args_(args),
        plan_(step_of(args.step).attention({args.num_heads, 1, args.value_dim, 0, kLatentRows})) {}

  int64_t num_items() const { return plan_.num_items(); }

  void run(int64_t index, int member) const {
    if (plan_.is_serial()) {
      for (const AttentionTile& tile : plan_.tiles()) {
        run_tile(tile, AttentionWork::kWhole, 0, nullptr, member);
      }
      return;
    }
    const AttentionItem& item = plan_.item(index);
    const AttentionTile& tile = plan_.tiles()[static_cast<size_t>(item.tile)];
    if (item.cut == AttentionItem::kWhole) {
      return run_tile(tile, AttentionWork::kWhole, 0, nullptr, member);
    }
    float* partials = context_.workspace.attention_partials().data() + plan_.offset_of(item.cut);
    run_tile(tile, AttentionWork::kSplit, item.split, partials, member);
    if (!plan_.finish_split(item.cut)) return;
    run_tile(tile, AttentionWork::kMerge, 0, partials, member);
  }

 private:
  void run_tile(const AttentionTile& tile, AttentionWork work, int64_t split, float* partials,
                int member) const {
    const Span& span = *tile.span;
    const KvPlane& plane = args_.plane.plane;
    LatentRowsArgs rows{};
    rows.work = work;
    rows.num_heads = args_.num_heads;
    rows.width = plane.width;
    rows.value_dim = args_.value_dim;
    const int64_t first_head_row = int64_t{span.first_row} * args_.num_heads;
    rows.q = raw(args_.q) + first_head_row * rows.width;
    rows.out = raw(args_.out) + first_head_row * rows.value_dim;
    rows.first_position = span.first_position;
    rows.first_row = tile.first_row;
    rows.num_rows = tile.num_rows;
    rows.kv_type = kv_dtype(plane.type);
    rows.kv_base = bytes_of(args_.plane);
    rows.kv_block_stride = args_.plane.block_stride;
    rows.block_table = span.tables[args_.plane.table];
    rows.scale = args_.scale;
    if (args_.kept) {
      rows.kept_stride = kept_words(args_.max_kept);
      rows.kept = raw(args_.kept) + span.first_row * rows.kept_stride;
    }
    rows.split = split;
    rows.partials = partials;
    rows.scratch = context_.workspace.member(member).attention;
    context_.kernels.latent->function.latent(rows);
  }

  const CpuContext& context_;
  const LatentAttentionArgs& args_;
  const AttentionPlan& plan_;
};

}  // namespace

void run_append_row(const CpuContext& context, const AppendRowArgs& args) {
  const RowAppend append(context, args);
  context.team.run(append.num_items(), [&](int64_t item, int /*member*/) { append.run(item); });
}

void run_select_keys(const CpuContext& context, const SelectKeysArgs& args) {
  const CpuStep& step = step_of(args.step);
  context.team.run(args.num_rows, [&](int64_t row, int member) {
    select_row(context, args, step.span_of(row), row, member);
  });
}

void run_latent_attention(const CpuContext& context, const LatentAttentionArgs& args) {
  const LatentItems items(context, args);
  context.team.run(items.num_items(), [&](int64_t item, int member) { items.run(item, member); });
}

}  // namespace headrace::cpu
