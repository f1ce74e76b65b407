// Adapters on the CPU: what they add to a weight, and which rows of an op get it.
//
// An op with such rows has one more phase, the products with A, of which every row keeps a few
// numbers (`low`); the products with B are added to the sums of each tile, before its epilogue.
// Both are made row by row in an order of their own: no other row reaches a result bit. Rows
// without an adapter, and steps without any, are computed as if there were none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/pack.h"
#include "base/buffer.h"

namespace headrace::cpu {

// Of one run of outputs of a weight, or of a table's width.
struct DeltaPart {
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  int64_t rank = 0;
  int64_t first_low = 0;  // where its numbers begin in a row of `low`
  AdapterBlocks a{};
  AdapterBlocks b{};
  const float* low_factors = nullptr;  // [rank]: of the products with A
  const float* columns = nullptr;      // of a table in the place of A: [tokens, rank]
  const float* factors = nullptr;      // [num_outputs]
  const float* bias = nullptr;         // [num_outputs]
};

struct CpuDelta {
  std::vector<DeltaPart> parts;
  int64_t rank = 0;                        // of all parts
  std::unique_ptr<CpuWeight> replacement;  // in float32; or null
};

class CpuAdapter final : public PackedAdapter {
 public:
  // Null: nothing.
  const CpuDelta* of_products(const PackedWeight& weight) const { return find(products_, weight); }
  const CpuDelta* of_table(const PackedWeight& table) const { return find(tables_, table); }
  size_t num_bytes() const override { return num_bytes_; }

 private:
  using Deltas = std::unordered_map<const PackedWeight*, CpuDelta>;
  friend Result<std::unique_ptr<CpuAdapter>> pack_cpu_adapter(std::span<const WeightDelta>,
                                                              const KernelSet&);
  static const CpuDelta* find(const Deltas& deltas, const PackedWeight& weight) {
    const auto found = deltas.find(&weight);
    return found == deltas.end() ? nullptr : &found->second;
  }

  Deltas products_;
  Deltas tables_;
  Buffer memory_;
  size_t num_bytes_ = 0;
};

// See Backend::pack_adapter.
Result<std::unique_ptr<CpuAdapter>> pack_cpu_adapter(std::span<const WeightDelta> deltas,
                                                     const KernelSet& kernels);

// Consecutive rows with the same delta.
struct DeltaRun {
  int64_t first_row;
  int64_t end_row;
  const CpuDelta* delta;
  int64_t first_item = 0;  // of the phase of their products with A
};

// What adapters add to the rows of one call. Row 0 of the call is row `first_row` of the runs and
// of `low`.
struct CallDeltas {
  std::span<const DeltaRun> runs;  // ascending
  float* low = nullptr;            // [rows, low_stride]
  int64_t low_stride = 0;
  int64_t first_row = 0;
  const KernelSet* kernels = nullptr;
  int64_t num_items = 0;  // of the phase of their products with A

  float* low_row(int64_t row) const { return low + (first_row + row) * low_stride; }

  // visit(run) for the rows [first, end) of the call, counted as the call does.
  template <typename Visit>
  void for_rows(int64_t first, int64_t end, const Visit& visit) const {
    first += first_row;
    end += first_row;
    auto run = std::upper_bound(runs.begin(), runs.end(), first,
                                [](int64_t row, const auto& r) { return row < r.end_row; });
    for (; run != runs.end() && run->first_row < end; ++run) {
      visit(DeltaRun{std::max(first, run->first_row) - first_row,
                     std::min(end, run->end_row) - first_row, run->delta, run->first_item});
    }
  }
};

// Runs of rows under construction, and their `low`. Keeps its memory.
class DeltaRows {
 public:
  void clear() { runs_.clear(); }
  // In ascending order of rows; null: nothing is added to this one.
  void add(int64_t row, const CpuDelta* delta);
  bool empty() const { return runs_.empty(); }
  // Allocates only for more rows than ever before.
  CallDeltas make(int64_t num_rows, const KernelSet& kernels);

 private:
  std::vector<DeltaRun> runs_;
  std::vector<float> low_;
};

// Products of one row with A, all parts.
void shrink_row(const CallDeltas& deltas, const CpuDelta& delta, const float* x, int64_t num_inputs,
                int64_t row);

// Products of a call's rows with A, as items of a phase.
class ShrinkItems {
 public:
  // deltas: or null. rows [M, num_inputs] are read when items run.
  ShrinkItems(const CallDeltas* deltas, const float* rows, int64_t num_inputs)
      : deltas_(deltas), rows_(rows), num_inputs_(num_inputs) {}

  int64_t num_items() const { return deltas_ == nullptr ? 0 : deltas_->num_items; }
  void operator()(int64_t item, int member) const;

 private:
  const CallDeltas* deltas_;
  const float* rows_;
  int64_t num_inputs_;
};

// The adapters of a step's rows.
class StepAdapters {
 public:
  explicit StepAdapters(const KernelSet& kernels) : kernels_(kernels) {}

  void begin(std::span<const Span> spans);
  bool empty() const { return spans_.empty(); }
  // Null: the model alone.
  const CpuAdapter* of_row(int64_t row) const;
  // Whether one of them adds to an expert of this weight.
  bool has_experts(const PackedWeight& weight) const;
  // What they add to the products of a weight with the rows of the step, or with some of them; good
  // until the next call. Null: nothing.
  const CallDeltas* of_call(const PackedWeight& weight, int64_t num_rows);
  const CallDeltas* of_rows(const PackedWeight& weight, std::span<const int32_t> rows);
  const KernelSet& kernels() const { return kernels_; }
  // Room of an op with experts: of its two products.
  DeltaRows& expert_rows(int product) { return expert_rows_[product]; }

 private:
  struct AdapterSpan {
    int64_t first_row, end_row;
    const CpuAdapter* adapter;
  };
  const CallDeltas* finish(int64_t num_rows);

  const KernelSet& kernels_;
  int64_t num_rows_ = 0;  // of the step
  std::vector<AdapterSpan> spans_;
  DeltaRows rows_;
  CallDeltas call_;
  DeltaRows expert_rows_[2];
};

}  // namespace headrace::cpu
