// Plans of KV appends and attention: independent items of work for the team.
//
// A plan is made by the caller of an op and lives as long as the op; it refers to the arguments and
// to the workspace of the context, which serves one attention at a time. Items may run in any
// order, on any member, at the same time; a plan is done when each has run once. Nothing of this
// reaches a result bit (kernels.h). Neither making nor running a plan allocates, but for the first
// batches with more sequences than any before.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace headrace::cpu {

// One item per sequence and KV block, so that words which positions share have one writer.
class QkvPlan {
 public:
  QkvPlan(const CpuContext& context, const QkvArgs& args);
  int64_t num_items() const { return num_items_; }
  void run(int64_t item) const;

 private:
  void append(int64_t block) const;

  const CpuContext& context_;
  const QkvArgs& args_;
  int64_t num_items_ = 0;
  int64_t num_blocks_ = 0;
};

// Tiles of rows that share a KV head. Tiles that would leave members idle are cut into their splits
// of KV; the member that finishes the last split of a tile folds them.
class AttentionPlan {
 public:
  AttentionPlan(const CpuContext& context, const AttentionArgs& args);
  int64_t num_items() const { return num_items_; }
  void run(int64_t item, int member) const;

 private:
  struct Tile {
    const Span* span;
    int64_t first_row;  // within the span, in the order of kernels.h
    int64_t num_rows;
    int kv_head;
  };

  struct TileWork {
    AttentionWork work;
    int64_t split = 0;
    float* partials = nullptr;
  };

  void choose_tile_rows();
  int64_t tiles_of(const Span& span) const;
  Tile tile_at(int64_t index) const;
  int64_t first_visible(const Tile& tile) const;
  int64_t end_visible(const Tile& tile) const;
  int64_t num_splits(const Tile& tile) const;
  int64_t cost_of(const Tile& tile) const;
  void cut_tiles(int64_t limit);
  void run_split(int64_t item, int member) const;
  void run_tile(const Tile& tile, const TileWork& work, int member) const;

  const CpuContext& context_;
  const AttentionArgs& args_;
  AttentionSpace& space_;
  const int group_;  // query heads of a KV head
  int64_t tile_rows_ = kAttentionRows;
  int64_t num_tiles_ = 0;
  int64_t num_split_items_ = 0;
  int64_t num_items_ = 0;
  bool serial_ = false;  // too little work to share: one item
};

void run_finish_qkv(const CpuContext& context, const QkvArgs& args);
void run_attention(const CpuContext& context, const AttentionArgs& args);

// Storage of a KV type in the kernels' terms.
KvDtype kv_dtype(KvType type);

}  // namespace headrace::cpu
