#include "backend/cpu/adapters.h"

#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kShrinkRows = 8;  // of an item
constexpr int64_t kShrinkRank = 16;
static_assert(kShrinkRank % kAdapterRanks == 0);

int64_t groups_of(const DeltaPart& part) { return divide_up(part.rank, kShrinkRank); }

int64_t groups_of(const CpuDelta& delta) {
  int64_t count = 0;
  for (const DeltaPart& part : delta.parts) count += groups_of(part);
  return count;
}

// Ranks of A from first_rank on, at most kShrinkRank, with some rows of x.
void shrink(const CallDeltas& deltas, const DeltaPart& part, int64_t first_rank,
            const ShrinkArgs& rows, int64_t first_low_row) {
  ShrinkArgs args = rows;
  args.rank = std::min(kShrinkRank, part.rank - first_rank);
  args.a = part.a;
  args.a.values += first_rank / kAdapterRanks * num_adapter_blocks(rows.num_inputs) *
                   adapter_block_bytes(part.a);
  args.factors = part.low_factors + first_rank;
  args.out = deltas.low + first_low_row * deltas.low_stride + part.first_low + first_rank;
  args.out_stride = deltas.low_stride;
  deltas.kernels->shrink->function.shrink(args);
}

}  // namespace

void DeltaRows::add(int64_t row, const CpuDelta* delta) {
  if (delta == nullptr) return;
  if (!runs_.empty() && runs_.back().end_row == row && runs_.back().delta == delta) {
    ++runs_.back().end_row;
  } else {
    runs_.push_back({row, row + 1, delta});
  }
}

CallDeltas DeltaRows::make(int64_t num_rows, const KernelSet& kernels) {
  int64_t rank = 0, num_items = 0;
  for (DeltaRun& run : runs_) {
    rank = std::max(rank, run.delta->rank);
    run.first_item = num_items;
    num_items += divide_up(run.end_row - run.first_row, kShrinkRows) * groups_of(*run.delta);
  }
  const auto needed = static_cast<size_t>(num_rows * rank);
  if (low_.size() < needed) low_.resize(needed);
  return {runs_, low_.data(), rank, 0, &kernels, num_items};
}

void shrink_row(const CallDeltas& deltas, const CpuDelta& delta, const float* x, int64_t num_inputs,
                int64_t row) {
  ShrinkArgs rows{};
  rows.x = x;
  rows.num_rows = 1;
  rows.num_inputs = rows.x_stride = num_inputs;
  for (const DeltaPart& part : delta.parts) {
    for (int64_t first = 0; first < part.rank; first += kShrinkRank) {
      shrink(deltas, part, first, rows, deltas.first_row + row);
    }
  }
}

void ShrinkItems::operator()(int64_t item, int /*member*/) const {
  const auto after =
      std::upper_bound(deltas_->runs.begin(), deltas_->runs.end(), item,
                       [](int64_t value, const DeltaRun& run) { return value < run.first_item; });
  const DeltaRun& run = *(after - 1);
  item -= run.first_item;
  const int64_t groups = groups_of(*run.delta);
  const int64_t first = run.first_row + item / groups * kShrinkRows;
  int64_t group = item % groups;
  const DeltaPart* part = run.delta->parts.data();
  while (group >= groups_of(*part)) group -= groups_of(*part++);
  ShrinkArgs rows{};
  rows.x = rows_ + (first - deltas_->first_row) * num_inputs_;
  rows.num_rows = std::min(kShrinkRows, run.end_row - first);
  rows.num_inputs = rows.x_stride = num_inputs_;
  shrink(*deltas_, *part, group * kShrinkRank, rows, first);
}

void StepAdapters::begin(std::span<const Span> spans) {
  spans_.clear();
  num_rows_ = 0;
  for (const Span& span : spans) {
    num_rows_ += span.num_rows;
    if (span.adapter == nullptr || span.num_rows == 0) continue;
    spans_.push_back({span.first_row, int64_t{span.first_row} + span.num_rows,
                      static_cast<const CpuAdapter*>(span.adapter)});
  }
}

const CpuAdapter* StepAdapters::of_row(int64_t row) const {
  const auto span =
      std::upper_bound(spans_.begin(), spans_.end(), row,
                       [](int64_t value, const AdapterSpan& s) { return value < s.end_row; });
  return span == spans_.end() || span->first_row > row ? nullptr : span->adapter;
}

bool StepAdapters::has_experts(const PackedWeight& weight) const {
  return std::any_of(spans_.begin(), spans_.end(), [&](const AdapterSpan& span) {
    for (int64_t e = 0; e < weight.num_experts(); ++e) {
      if (span.adapter->of_products(weight.expert(e)) != nullptr) return true;
    }
    return false;
  });
}

const CallDeltas* StepAdapters::of_call(const PackedWeight& weight, int64_t num_rows) {
  if (spans_.empty()) return nullptr;
  rows_.clear();
  for (const AdapterSpan& span : spans_) {
    const CpuDelta* delta = span.adapter->of_products(weight);
    if (delta == nullptr) continue;
    CHECK(num_rows == num_rows_, "an op of {} rows in a step of {} with adapters", num_rows,
          num_rows_);
    for (int64_t row = span.first_row; row < span.end_row; ++row) rows_.add(row, delta);
  }
  return finish(num_rows);
}

const CallDeltas* StepAdapters::of_rows(const PackedWeight& weight, std::span<const int32_t> rows) {
  if (spans_.empty()) return nullptr;
  rows_.clear();
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const CpuAdapter* adapter = of_row(rows[static_cast<size_t>(i)]);
    if (adapter != nullptr) rows_.add(i, adapter->of_products(weight));
  }
  return finish(std::ssize(rows));
}

const CallDeltas* StepAdapters::finish(int64_t num_rows) {
  if (rows_.empty()) return nullptr;
  call_ = rows_.make(num_rows, kernels_);
  return &call_;
}

}  // namespace headrace::cpu
