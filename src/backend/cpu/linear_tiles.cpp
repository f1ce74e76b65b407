#include "backend/cpu/linear_tiles.h"

#include <algorithm>

#include "backend/cpu/norm.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kInputsPerItem = 8192;  // normed and quantised by one item, about

int64_t slice_stride(const LinearCall& call, ActivationType type) {
  return call.num_rows * activation_record_bytes(type);
}

// Sums of the tile's rows from `first` to `end` with the weight that an adapter has instead.
void replace_sums(const LinearCall& call, const RowSource& source, const Tile2D& tile,
                  const DeltaRun& run, const MemberScratch& scratch) {
  const Segment& segment = run.delta->replacement->segments()[0];
  CHECK(column_of(tile) % kPanel == 0, "a part of a weight at {} is replaced", column_of(tile));
  MatmulArgs args{};
  args.weight = segment.data;
  args.panel_bytes = segment.panel_bytes;
  args.num_inputs = args.x_stride = call.weight.num_inputs();
  args.x = source.rows + run.first_row * args.num_inputs;
  args.num_rows = run.end_row - run.first_row;
  args.first_panel = column_of(tile) / kPanel;
  args.num_panels = tile.num_panels;
  args.sums_stride = tile.num_panels * kPanel;
  args.sums = scratch.sums + (run.first_row - tile.first_row) * args.sums_stride;
  args.scratch = scratch.matmul;
  segment.matmul.for_rows(args.num_rows).function.matmul(args);
}

// What one part of a delta adds to the columns that it shares with the tile.
void expand_part(const LinearCall& call, const Tile2D& tile, const DeltaRun& run,
                 const DeltaPart& part, const MemberScratch& scratch) {
  const int64_t begin = std::max(column_of(tile), part.first_output);
  const int64_t end =
      std::min(column_of(tile) + outputs_of(tile), part.first_output + part.num_outputs);
  if (begin >= end) return;
  const int64_t skipped = begin - part.first_output;
  ExpandArgs args{};
  args.low = call.deltas->low_row(run.first_row) + part.first_low;
  args.low_stride = call.deltas->low_stride;
  args.num_rows = run.end_row - run.first_row;
  args.rank = part.rank;
  args.b = rows_from(part.b, skipped);
  args.factors = part.factors == nullptr ? nullptr : part.factors + skipped;
  args.bias = part.bias == nullptr ? nullptr : part.bias + skipped;
  args.sums_stride = tile.num_panels * kPanel;
  args.sums =
      scratch.sums + (run.first_row - tile.first_row) * args.sums_stride + begin - column_of(tile);
  args.num_outputs = end - begin;
  call.deltas->kernels->expand->function.expand(args);
}

void add_deltas(const LinearCall& call, const RowSource& source, const Tile2D& tile,
                const MemberScratch& scratch) {
  call.deltas->for_rows(tile.first_row, tile.first_row + tile.num_rows, [&](const DeltaRun& run) {
    if (run.delta->replacement != nullptr) replace_sums(call, source, tile, run, scratch);
    for (const DeltaPart& part : run.delta->parts) expand_part(call, tile, run, part, scratch);
  });
}

}  // namespace

InputRows::InputRows(const CpuContext& context, const LinearCall& call)
    : context_(context),
      call_(call),
      width_(call.weight.num_inputs()),
      rows_per_item_(std::clamp<int64_t>(kInputsPerItem / width_, 1, kRowsPerItem)),
      norms_(static_cast<bool>(call.input.norm.weight)) {
  for (const KernelRow* row : {context.kernels.quantise, context.kernels.quantise_dense}) {
    if (row != nullptr && call.weight.takes(row->activation)) kernels_[num_kernels_++] = row;
  }
  const bool in_scratch = !call.weight.takes(ActivationType::kF32) && width_ <= kTileFloats;
  if (norms_ && (!in_scratch || call.deltas != nullptr)) normed_ = raw(call.input.normed);
}

int64_t InputRows::num_items() const {
  if (num_kernels_ == 0 && !norms_) return 0;
  return divide_up(call_.num_rows, rows_per_item_);
}

void InputRows::operator()(int64_t item, int member) const {
  const int64_t first = item * rows_per_item_;
  const int64_t end = std::min(first + rows_per_item_, call_.num_rows);
  const MemberScratch& scratch = context_.workspace.member(member);
  for (int64_t row = first; row < end; ++row) {
    prepare(row, normed_ == nullptr ? scratch.sums : normed_ + row * width_, all(), scratch);
  }
}

RowSource InputRows::all() const {
  const CpuWorkspace& workspace = context_.workspace;
  return {normed_ == nullptr ? raw(call_.input.x) : normed_,
          {workspace.activations(ActivationType::kBF16),
           workspace.activations(ActivationType::kInt16)}};
}

RowSource InputRows::of_member(int member) const {
  const MemberScratch& scratch = context_.workspace.member(member);
  const RowSource source{norms_ ? scratch.normed : raw(call_.input.x),
                         {scratch.activations[0], scratch.activations[1]}};
  prepare(0, scratch.normed, source, scratch);
  return source;
}

void InputRows::prepare(int64_t row, float* normed, const RowSource& to,
                        const MemberScratch& scratch) const {
  const float* x = raw(call_.input.x) + row * width_;
  if (norms_) {
    context_.kernels.norm->function.norm(norm_rows(call_.input.norm, x, normed, width_));
    x = normed;
  }
  quantise_row(x, row, to, scratch);
}

void InputRows::quantise_row(const float* x, int64_t row, const RowSource& to,
                             const MemberScratch& scratch) const {
  for (const KernelRow* kernel : kernels()) {
    const ActivationType type = kernel->activation;
    quantise(*kernel, x, to.activations[is_integer(type)] + row * activation_record_bytes(type),
             scratch.matmul);
  }
}

// Integers in the order of the weight's inputs, a piece at a time where that is another.
void InputRows::quantise(const KernelRow& kernel, const float* x, uint8_t* out,
                         float* piece) const {
  const int64_t stride = slice_stride(call_, kernel.activation);
  const std::span<const int32_t> order = call_.weight.input_order();
  if (order.empty() || !is_integer(kernel.activation)) {
    return kernel.function.quantise({x, 1, width_, out, stride});
  }
  constexpr int64_t kPiece = kMatmulScratchFloats;
  static_assert(kPiece % kSliceInputs == 0);
  for (int64_t first = 0; first < width_; first += kPiece) {
    const int64_t count = std::min(kPiece, width_ - first);
    for (int64_t i = 0; i < count; ++i) piece[i] = x[order[static_cast<size_t>(first + i)]];
    kernel.function.quantise({piece, 1, count, out + first / kSliceInputs * stride, stride});
  }
}

void compute_sums(const LinearCall& call, const RowSource& source, const Tile2D& tile,
                  const MemberScratch& scratch) {
  const Segment& segment = *tile.segment;
  const ActivationType type = segment.matmul.activation();
  MatmulArgs args{};
  args.weight = segment.data;
  args.panel_bytes = segment.panel_bytes;
  args.num_inputs = call.weight.num_inputs();
  if (type == ActivationType::kF32) {
    args.x = source.rows + tile.first_row * args.num_inputs;
    args.x_stride = args.num_inputs;
  } else {
    args.x = source.activations[is_integer(type)] + tile.first_row * activation_record_bytes(type);
    args.x_stride = slice_stride(call, type);
  }
  args.num_rows = tile.num_rows;
  args.first_panel = tile.first_panel;
  args.num_panels = tile.num_panels;
  args.sums = scratch.sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.scratch = scratch.matmul;
  // By the rows of the whole call, so that a last short block of rows changes nothing.
  segment.matmul.for_rows(call.num_rows).function.matmul(args);
  if (call.deltas != nullptr) add_deltas(call, source, tile, scratch);
}

void prefetch_start(const Tile2D& tile) {
  constexpr int64_t kMostBytes = 4096;
  const auto stride = static_cast<int64_t>(tile.segment->panel_bytes);
  const uint8_t* start = tile.segment->data + tile.first_panel * stride;
  const int64_t num_bytes = std::min(tile.num_panels * stride, kMostBytes);
  for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch(start + i);
}

}  // namespace headrace::cpu
