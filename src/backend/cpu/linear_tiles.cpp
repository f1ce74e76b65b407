#include "backend/cpu/linear_tiles.h"

#include <algorithm>

#include "backend/cpu/norm.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kInputsPerItem = 8192;  // normed and quantised by one item, about

int64_t stride_of(const LinearCall& call, ActivationType type) {
  return activation_stride(type, call.num_rows, call.weight.num_inputs());
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

// The outputs that a part of a delta shares with a tile, counted as the weight does.
struct SharedOutputs {
  int64_t begin, end;
};
SharedOutputs shared_outputs(const Tile2D& tile, const DeltaPart& part) {
  return {std::max(column_of(tile), part.first_output),
          std::min(column_of(tile) + outputs_of(tile), part.first_output + part.num_outputs)};
}

// What one part of a delta adds to the columns that it shares with the tile.
void expand_part(const LinearCall& call, const Tile2D& tile, const DeltaRun& run,
                 const DeltaPart& part, const MemberScratch& scratch) {
  const auto [begin, end] = shared_outputs(tile, part);
  if (begin >= end) return;
  const int64_t skipped = begin - part.first_output;
  ExpandArgs args{};
  args.low = call.deltas->low_row(run.first_row) + part.first_low;
  args.low_stride = call.deltas->low_stride;
  args.num_rows = run.end_row - run.first_row;
  args.b = part.b;
  args.b.values += skipped / kAdapterBlock * adapter_block_bytes(part.b);
  args.skipped = skipped % kAdapterBlock;
  args.factors = part.factors == nullptr ? nullptr : part.factors + skipped;
  args.bias = part.bias == nullptr ? nullptr : part.bias + skipped;
  args.sums_stride = tile.num_panels * kPanel;
  args.sums =
      scratch.sums + (run.first_row - tile.first_row) * args.sums_stride + begin - column_of(tile);
  args.num_outputs = end - begin;
  call.deltas->kernels->expand->function.expand(args);
}

// What the rows of a piece of a tile will read of B comes into the second cache.
void prefetch_deltas(const CallDeltas& deltas, const Tile2D& piece) {
  constexpr int kSecondCache = 2;
  deltas.for_rows(piece.first_row, piece.first_row + piece.num_rows, [&](const DeltaRun& run) {
    for (const DeltaPart& part : run.delta->parts) {
      const auto [begin, end] = shared_outputs(piece, part);
      if (begin >= end) continue;
      const int64_t block_bytes = adapter_block_bytes(part.b);
      const int64_t first = (begin - part.first_output) / kAdapterBlock * block_bytes;
      const int64_t last = num_adapter_blocks(end - part.first_output) * block_bytes;
      for (int64_t i = first; i < last; i += 64) {
        __builtin_prefetch(part.b.values + i, 0, kSecondCache);
      }
    }
  });
}

void add_deltas(const LinearCall& call, const RowSource& source, const Tile2D& tile,
                const MemberScratch& scratch) {
  call.deltas->for_rows(tile.first_row, tile.first_row + tile.num_rows, [&](const DeltaRun& run) {
    if (run.delta->replacement != nullptr) replace_sums(call, source, tile, run, scratch);
    for (const DeltaPart& part : run.delta->parts) expand_part(call, tile, run, part, scratch);
  });
}

// Points at rows [first, first + count) of those that `whole` is of.
void take_rows(ActivationType type, const MatmulArgs& whole, int64_t first, int64_t count,
               MatmulArgs* args) {
  const auto* x = static_cast<const uint8_t*>(whole.x);
  args->num_rows = count;
  if (type == ActivationType::kF32) {
    args->x = x + first * whole.x_stride * static_cast<int64_t>(sizeof(float));
    return;
  }
  const auto [before, behind] = whole.beside;
  const StoredRows rows =
      stored_rows(type, before + first, count, before + whole.num_rows + behind, whole.x_stride);
  args->x = x + rows.offset;
  args->beside = rows.beside;
}

constexpr int64_t kMostDirectRows = 8;
constexpr int64_t kMostPiecedRows = 64;  // more have few adapters, whose numbers many rows use
constexpr int64_t kTilePiecePanels = 8;  // a call that configures tiles waits 200 cycles for that

// The sums of a tile, one tile of the kernel at a time: what adapters will add to it comes from
// memory meanwhile, a few lines at a time, which is as fast as they come.
void multiply_in_pieces(const CallDeltas& deltas, const Tile2D& tile, const KernelRow& kernel,
                        const MatmulArgs& whole) {
  const int64_t panels = kernel.tile.rows >= kAmxRowQuantum
                             ? kTilePiecePanels
                             : std::max<int64_t>(kernel.tile.outputs / kPanel, 2);
  // Kernels of many rows unpack the weight for all of them.
  const int64_t rows =
      kernel.tile.rows > kMostDirectRows ? tile.num_rows : std::max<int64_t>(kernel.tile.rows, 1);
  for (int64_t p = 0; p < tile.num_panels; p += panels) {
    for (int64_t m = 0; m < tile.num_rows; m += rows) {
      const Tile2D piece{tile.segment, tile.first_row + m, std::min(rows, tile.num_rows - m),
                         tile.first_panel + p, std::min(panels, tile.num_panels - p)};
      prefetch_deltas(deltas, piece);
      MatmulArgs args = whole;
      take_rows(kernel.activation, whole, m, piece.num_rows, &args);
      args.first_panel = piece.first_panel;
      args.num_panels = piece.num_panels;
      args.sums = whole.sums + m * whole.sums_stride + p * kPanel;
      kernel.function.matmul(args);
    }
  }
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
    quantise(*kernel, x, row, to.activations[is_of_codes(type)], scratch.matmul);
  }
}

// Integers in the order of the weight's inputs, a piece at a time where that is another.
void InputRows::quantise(const KernelRow& kernel, const float* x, int64_t row, uint8_t* rows,
                         float* piece) const {
  const ActivationType type = kernel.activation;
  const int64_t stride = stride_of(call_, type);
  const StoredRows at = stored_rows(type, row, 1, call_.num_rows, stride);
  const QuantiseArgs whole{x, 1, width_, rows + at.offset, stride, at.beside};
  const std::span<const int32_t> order = call_.weight.input_order();
  if (order.empty() || !is_of_codes(type)) return kernel.function.quantise(whole);
  // Whole segments; what is left for the last piece makes segments as it does in all of the row.
  constexpr int64_t kPiece = 28 * kFixedSegment;  // half of a first cache
  static_assert(kPiece > kLongestFixedSegment && kPiece <= kMatmulScratchFloats);
  for (int64_t first = 0, count; first < width_; first += count) {
    count = width_ - first <= kPiece ? width_ - first : kPiece - kFixedSegment;
    for (int64_t i = 0; i < count; ++i) piece[i] = x[order[static_cast<size_t>(first + i)]];
    QuantiseArgs args = whole;
    args.x = piece;
    args.num_inputs = count;
    if (lies_in_tiles(type)) {
      args.first_input = first;
    } else {
      args.out += first / kSliceInputs * stride;
    }
    kernel.function.quantise(args);
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
    args.x_stride = stride_of(call, type);
    const StoredRows rows =
        stored_rows(type, tile.first_row, tile.num_rows, call.num_rows, args.x_stride);
    args.x = source.activations[is_of_codes(type)] + rows.offset;
    args.beside = rows.beside;
  }
  args.num_rows = tile.num_rows;
  args.first_panel = tile.first_panel;
  args.num_panels = tile.num_panels;
  args.sums = scratch.sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.scratch = scratch.matmul;
  // By the rows of the whole call, so that a last short block of rows changes nothing.
  const KernelRow& kernel = segment.matmul.for_rows(call.num_rows);
  if (call.deltas == nullptr) return kernel.function.matmul(args);
  if (tile.num_rows > kMostPiecedRows) {
    kernel.function.matmul(args);
  } else {
    multiply_in_pieces(*call.deltas, tile, kernel, args);
  }
  add_deltas(call, source, tile, scratch);
}

void prefetch_start(const Tile2D& tile) {
  constexpr int64_t kMostBytes = 4096;
  const auto stride = static_cast<int64_t>(tile.segment->panel_bytes);
  const uint8_t* start = tile.segment->data + tile.first_panel * stride;
  const int64_t num_bytes = std::min(tile.num_panels * stride, kMostBytes);
  for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch(start + i);
}

}  // namespace headrace::cpu
