// What the ops of a step's layers share, made once when the step begins: the rows that each item of
// a KV append takes, those of other ops, and how attention is cut into items for the team.
//
// Items may run in any order, on any member, at the same time. Nothing of this reaches a result bit
// (kernels.h). Making a step allocates nothing, but for the first with more rows, sequences or
// shapes than any before. Owner: the back end; made on its caller's thread, read by all members.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

// Rows of a span that lie in one KV block, so that words which positions share have one writer.
struct AppendItem {
  const Span* span;
  int64_t first_row;  // of the batch
  int64_t end_row;
};

// Consecutive rows of a span that one item takes where rows do not wait for each other. Guesses
// that may be taken back go with the last rows before them.
struct RowRun {
  const Span* span;
  int64_t first_row;  // within the span
  int64_t num_rows;
  int64_t num_guesses;  // behind these rows
};
inline constexpr int64_t kRunRows = 64;

// What decides how attention is cut, beside the spans.
struct AttentionShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;
  int64_t most_rows = kAttentionRows;  // of a tile

  bool operator==(const AttentionShape&) const = default;
};

// Rows of a span that share a KV head.
struct AttentionTile {
  const Span* span;
  int64_t first_row;  // within the span, in the order of kernels.h
  int64_t num_rows;
  int kv_head;
};

// A tile, or one of the splits of KV that it is cut into.
struct AttentionItem {
  static constexpr int64_t kWhole = -1;

  int64_t tile;
  int64_t cut = kWhole;
  int64_t split = 0;  // of all positions, as kernels.h numbers them
};

// The attention of all layers of one shape. Tiles that would leave members idle are cut into their
// splits of KV; the member that finishes the last split of a tile folds them.
class AttentionPlan {
 public:
  // partial_floats: room for the partial results of cut tiles.
  AttentionPlan(int num_members, size_t partial_floats);

  void make(std::span<const Span> spans, const AttentionShape& shape);
  const AttentionShape& shape() const { return shape_; }

  // One item stands for all tiles where there is too little work to share.
  bool is_serial() const { return serial_; }
  int64_t num_items() const { return std::ssize(items_); }
  const AttentionItem& item(int64_t index) const { return items_[static_cast<size_t>(index)]; }
  std::span<const AttentionTile> tiles() const { return tiles_; }

  // Positions [begin, end) whose keys an item attends to.
  struct Positions {
    int64_t begin, end;
  };
  Positions positions_of(const AttentionItem& item) const;

  // Where a cut tile keeps its partial results, in floats.
  int64_t offset_of(int64_t cut) const { return cuts_[static_cast<size_t>(cut)].offset; }
  // One split of a cut has been computed. True: it was the last, and the plan is as new.
  bool finish_split(int64_t cut) const;

 private:
  struct Cut {
    int64_t num_splits;
    int64_t offset;
  };

  void choose_tile_rows(std::span<const Span> spans);
  int64_t tiles_of(const Span& span) const;
  void add_tiles(const Span& span);
  void add_items(int64_t limit);
  bool cut_tile(int64_t tile_idx, int64_t limit);
  int64_t first_visible(const AttentionTile& tile) const;
  int64_t end_visible(const AttentionTile& tile) const;
  int64_t num_splits(const AttentionTile& tile) const;
  int64_t cost_of(const AttentionTile& tile) const;

  const int64_t num_members_;
  const int64_t partial_floats_;
  AttentionShape shape_;
  int64_t group_ = 1;  // query heads of a KV head
  int64_t tile_rows_ = 0;
  bool serial_ = false;
  int64_t used_floats_ = 0;
  std::vector<AttentionTile> tiles_;
  std::vector<AttentionItem> items_;                   // those of cuts first
  std::vector<Cut> cuts_;                              // never beyond its capacity
  std::unique_ptr<std::atomic<int64_t>[]> remaining_;  // splits to come, by cut
  std::vector<bool> is_cut_;                           // by tile
};

class CpuStep final : public StepGeometry {
 public:
  CpuStep(int num_members, size_t partial_floats);

  // The spans cover rows 0.. in order.
  void begin(std::span<const Span> spans);

  int64_t num_rows() const { return num_rows_; }
  std::span<const Span> spans() const { return spans_; }
  // Each row once, kRunRows of a span and guesses at most in a run.
  std::span<const RowRun> runs() const { return runs_; }
  // That holds a row of the batch.
  const Span& span_of(int64_t row) const;
  // Each row once; few rows are one item, whatever their sequences.
  int64_t num_append_items() const;
  std::span<const AppendItem> appends_of(int64_t item) const;
  // Made when the step's first layer of the shape asks for it. The caller's thread.
  const AttentionPlan& attention(const AttentionShape& shape) const;

 private:
  void add_appends(const Span& span);
  void add_runs(const Span& span);

  const int num_members_;
  const size_t partial_floats_;
  int64_t num_rows_ = 0;
  std::vector<Span> spans_;
  std::vector<AppendItem> appends_;
  std::vector<RowRun> runs_;
  mutable std::vector<std::unique_ptr<AttentionPlan>> plans_;
  mutable size_t num_plans_ = 0;  // of this step; further ones are kept for their memory
};

}  // namespace headrace::cpu
