#include "backend/cpu/matmul.h"

#include <algorithm>

#include "backend/cpu/attention.h"
#include "backend/cpu/norm.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
void finish_tile(const CpuContext& context, const LinearCall& call, const Tile2D& tile,
                 const Epilogue& epilogue, const float* sums) {
  const int64_t num_outputs = call.weight.num_outputs();
  const int64_t column = column_of(tile);
  const int64_t offset = tile.first_row * num_outputs + column;
  FinishArgs args{};
  args.sums = sums;
  args.sums_stride = tile.num_panels * kPanel;
  args.bias = at_or_null(epilogue.bias, column);
  args.residual = at_or_null(epilogue.residual, offset);
  args.out = call.out + offset;
  args.out_stride = num_outputs;
  args.num_rows = tile.num_rows;
  args.num_outputs = outputs_of(tile);
  args.scale = epilogue.scale;
  args.softcap = epilogue.softcap;
  context.kernels.finish->function.finish(args);
}

namespace {

void gate_tile(const CpuContext& context, const LinearCall& call, const Tile2D& tile,
               const GateForm& form, const float* bias, const MemberScratch& scratch) {
  const int64_t width = call.weight.num_outputs() / 2;
  const int64_t column = tile.first_panel * kPanel;
  GateArgs args{};
  args.gate = scratch.sums;
  args.up = scratch.up_sums;
  args.gate_stride = args.up_stride = tile.num_panels * kPanel;
  args.gate_bias = bias == nullptr ? nullptr : bias + column;
  args.up_bias = bias == nullptr ? nullptr : bias + width + column;
  args.out = call.out + tile.first_row * width + column;
  args.out_stride = width;
  args.num_rows = tile.num_rows;
  args.num_outputs = std::min(tile.num_panels * kPanel, width - column);
  args.kind = form.kind;
  args.alpha = form.alpha;
  args.limit = form.limit;
  context.kernels.gate->function.gate(args);
}

}  // namespace

void compute_gated(const CpuContext& context, const LinearCall& call, const RowSource& source,
                   const Tile2D& gate, const Gating& gating, const MemberScratch& scratch) {
  Tile2D up = gate;
  up.segment = &call.weight.segments()[1];
  compute_sums(call, source, gate, scratch);
  MemberScratch up_scratch = scratch;
  up_scratch.sums = scratch.up_sums;
  compute_sums(call, source, up, up_scratch);
  gate_tile(context, call, gate, gating.form, gating.bias, scratch);
}

namespace {

void activate_tile(const CpuContext& context, const LinearCall& call, const Tile2D& tile,
                   const ActivatedArgs& activated, const float* sums) {
  const int64_t column = column_of(tile);
  GateArgs args{};
  args.gate = sums;
  args.gate_stride = tile.num_panels * kPanel;
  args.up = at_or_null(activated.factors, tile.first_row * activated.factor_stride + column);
  args.up_stride = activated.factor_stride;
  args.gate_bias = at_or_null(activated.bias, column);
  args.out_stride = call.weight.num_outputs();
  args.out = call.out + tile.first_row * args.out_stride + column;
  args.num_rows = tile.num_rows;
  args.num_outputs = outputs_of(tile);
  args.kind = gate_form(activated.activation).kind;
  const Xielu& xielu = activated.xielu;
  args.xielu = {xielu.positive, xielu.negative, xielu.beta, xielu.eps};
  context.kernels.gate->function.gate(args);
}

// Rows of the tile that are not written: their values stay in the sums and are compared there.
void compare_tile(const CpuContext& context, const Tile2D& tile, const HeadArgs& head,
                  float* sums) {
  const int64_t stride = tile.num_panels * kPanel;
  FinishArgs args{};
  args.sums = args.out = sums;
  args.sums_stride = args.out_stride = stride;
  args.num_rows = tile.num_rows;
  args.num_outputs = outputs_of(tile);
  args.bias = at_or_null(head.bias, column_of(tile));
  args.scale = head.scale;
  args.softcap = head.softcap;
  context.kernels.finish->function.finish(args);
  for (int64_t m = 0; m < tile.num_rows; ++m) {
    context.best.add(tile.first_row + m - head.num_written, sums + m * stride, args.num_outputs,
                     column_of(tile));
  }
}

void head_tile(const CpuContext& context, const LinearCall& call, const Tile2D& tile,
               const HeadArgs& head, float* sums) {
  Tile2D written = tile, compared = tile;
  written.num_rows = std::clamp<int64_t>(head.num_written - tile.first_row, 0, tile.num_rows);
  compared.first_row += written.num_rows;
  compared.num_rows -= written.num_rows;
  const Epilogue epilogue{.bias = head.bias, .scale = head.scale, .softcap = head.softcap};
  if (written.num_rows > 0) finish_tile(context, call, written, epilogue, sums);
  if (compared.num_rows == 0) return;
  compare_tile(context, compared, head, sums + written.num_rows * tile.num_panels * kPanel);
}

// visit(tile) for each segment's part of a piece, one row.
template <typename Visit>
void visit_piece(std::span<const Segment> segments, const Piece& piece, const Visit& visit) {
  int64_t before = 0;  // panels of the segments before
  for (const Segment& segment : segments) {
    const int64_t first = std::max(piece.first - before, int64_t{0});
    const int64_t end = std::min(piece.first + piece.count - before, segment.num_panels);
    if (first < end) visit(Tile2D{&segment, 0, 1, first, end - first});
    before += segment.num_panels;
  }
}

PanelShares::Plan shares_plan(std::span<const Segment> segments, int64_t num_members) {
  PanelShares::Plan plan{0, 1, kTileFloats / kPanel};
  for (const Segment& segment : segments) {
    plan.num_panels += segment.num_panels;
    plan.unit = std::max<int64_t>(plan.unit, segment.matmul.for_rows(1).tile.outputs / kPanel);
    const double panel_ns = static_cast<double>(segment.panel_bytes) / kWeightBytesPerNs;
    plan.most = std::min(plan.most, static_cast<int64_t>(kMaxItemNs / panel_ns));
  }
  plan.unit = std::clamp<int64_t>(plan.num_panels / (kItemsPerMember * num_members), 1, plan.unit);
  return plan;
}

// One op on one row. Every member makes the input for itself, which takes less time than waiting
// for the one that does, and then takes panels; compute(tile, source, scratch) does the rest.
template <typename Compute, typename Last>
void run_row(const CpuContext& context, const LinearCall& call, std::span<const Segment> segments,
             const Compute& compute, const Phase<Last>& last) {
  const InputRows input(context, call);
  PanelShares& shares = context.workspace.shares();
  const Piece first = shares.divide(shares_plan(segments, context.team.num_threads()));
  context.team.run(Phase{shares.num_takers(),
                         [&](int64_t item, int member) {
                           Piece piece = item == 0 ? first : shares.take(member);
                           if (piece.count == 0) return;
                           visit_piece(segments, piece, prefetch_start);
                           const RowSource source = input.of_member(member);
                           for (; piece.count > 0; piece = shares.take(member)) {
                             visit_piece(segments, piece, [&](const Tile2D& tile) {
                               compute(tile, source, context.workspace.member(member));
                             });
                           }
                         }},
                   last);
}

// One op: the input's phase, that of the adapters' first products, tiles that compute(tile, source,
// scratch) makes of the panels of `segments`, and one more phase of rows.
template <typename Compute, typename Last>
void run_tiles(const CpuContext& context, const LinearCall& call, std::span<const Segment> segments,
               const Compute& compute, const Phase<Last>& last) {
  if (call.num_rows == 1 && call.deltas == nullptr) {
    return run_row(context, call, segments, compute, last);
  }
  const InputRows input(context, call);
  const ShrinkItems shrink(call.deltas, input.all().rows, call.weight.num_inputs());
  const LinearTiles tiles(segments, call.weight.num_inputs(), call.num_rows,
                          context.team.num_threads());
  context.team.run(Phase{input.num_items(), input}, Phase{shrink.num_items(), shrink},
                   Phase{tiles.num_items(),
                         [&](int64_t item, int member) {
                           compute(tiles.at(item), input.all(), context.workspace.member(member));
                         }},
                   last);
}

// The same for all segments of the weight; finish(tile, scratch) ends a tile.
template <typename Finish, typename Last>
void run_products(const CpuContext& context, const LinearCall& call, const Finish& finish,
                  const Phase<Last>& last) {
  run_tiles(
      context, call, call.weight.segments(),
      [&](const Tile2D& tile, const RowSource& source, const MemberScratch& scratch) {
        compute_sums(call, source, tile, scratch);
        finish(tile, scratch);
      },
      last);
}

constexpr auto kNothing = [](int64_t /*item*/, int /*member*/) {};

struct RowRange {
  int64_t first, end;
};

// Rows of y in epilogue.branch become rows of the output: norm, scale, residual.
void norm_branch(const CpuContext& context, const LinearCall& call, const Epilogue& epilogue,
                 const RowRange& range) {
  const int64_t width = call.weight.num_outputs();
  const int64_t offset = range.first * width;
  NormRowsArgs rows =
      norm_rows(epilogue.post_norm, raw(epilogue.branch) + offset, call.out + offset, width);
  rows.residual = at_or_null(epilogue.residual, offset);
  rows.num_rows = range.end - range.first;
  rows.scale = epilogue.scale;
  rows.gain = raw(epilogue.gain);
  context.kernels.norm->function.norm(rows);
}

// Rows of products in epilogue.branch, which reduction has summed up: bias and all that follows.
void finish_branch(const CpuContext& context, const LinearCall& call, const Epilogue& epilogue,
                   const RowRange& range) {
  const bool norms = static_cast<bool>(epilogue.post_norm.weight);
  const int64_t width = call.weight.num_outputs();
  const int64_t offset = range.first * width;
  float* products = raw(epilogue.branch) + offset;
  FinishArgs args{};
  args.sums = products;
  args.sums_stride = args.out_stride = width;
  args.bias = raw(epilogue.bias);
  args.residual = norms ? nullptr : at_or_null(epilogue.residual, offset);
  args.out = norms ? products : call.out + offset;
  args.num_rows = range.end - range.first;
  args.num_outputs = width;
  args.scale = norms ? 1.0f : epilogue.scale;
  args.softcap = epilogue.softcap;
  context.kernels.finish->function.finish(args);
  if (norms) norm_branch(context, call, epilogue, range);
}

// The product, the sum over all who hold a part of K, the epilogue: two joins.
void run_reduced_linear(const CpuContext& context, const LinearCall& call,
                        const Epilogue& epilogue) {
  const LinearCall product{call.weight, call.input, call.num_rows, raw(epilogue.branch),
                           call.deltas};
  run_products(
      context, product,
      [&](const Tile2D& tile, const MemberScratch& scratch) {
        finish_tile(context, product, tile, {}, scratch.sums);
      },
      Phase{0, kNothing});
  epilogue.reduction->reduce(epilogue.branch, call.num_rows, call.weight.num_outputs());
  const RowItems items(call.num_rows);
  context.team.run(items.num_items(), [&](int64_t item, int /*member*/) {
    finish_branch(context, call, epilogue, {items.first(item), items.end(item)});
  });
}

}  // namespace

GateForm gate_form(Activation activation) {
  // By Activation.
  constexpr GateKind kKinds[] = {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kSigmoid,
                                 GateKind::kGelu, GateKind::kRelu,     GateKind::kReluSquared,
                                 GateKind::kXielu};
  static_assert(std::size(kKinds) == kNumActivations);
  return {.kind = kKinds[static_cast<size_t>(activation)]};
}

void run_linear(const CpuContext& context, const LinearCall& call, const Epilogue& epilogue) {
  if (call.num_rows == 0) return;
  if (epilogue.reduction != nullptr) return run_reduced_linear(context, call, epilogue);
  const bool norms = static_cast<bool>(epilogue.post_norm.weight);
  const Epilogue branch_epilogue{.bias = epilogue.bias};
  const LinearCall branch{call.weight, call.input, call.num_rows, raw(epilogue.branch)};
  const RowItems items(norms ? call.num_rows : 0);
  run_products(
      context, call,
      [&](const Tile2D& tile, const MemberScratch& scratch) {
        finish_tile(context, norms ? branch : call, tile, norms ? branch_epilogue : epilogue,
                    scratch.sums);
      },
      Phase{items.num_items(), [&](int64_t item, int /*member*/) {
              norm_branch(context, call, epilogue, {items.first(item), items.end(item)});
            }});
}

void run_gated_linear(const CpuContext& context, const LinearCall& call, const GateForm& form,
                      const float* bias) {
  if (call.num_rows == 0) return;
  // Numbered over the gate; each item takes the same panels of both parts.
  run_tiles(
      context, call, call.weight.segments().first(1),
      [&](const Tile2D& gate, const RowSource& source, const MemberScratch& scratch) {
        compute_gated(context, call, source, gate, {form, bias}, scratch);
      },
      Phase{0, kNothing});
}

void run_activated_linear(const CpuContext& context, const LinearCall& call,
                          const ActivatedArgs& activated) {
  if (call.num_rows == 0) return;
  run_products(
      context, call,
      [&](const Tile2D& tile, const MemberScratch& scratch) {
        activate_tile(context, call, tile, activated, scratch.sums);
      },
      Phase{0, kNothing});
}

void run_qkv_linear(const CpuContext& context, const LinearCall& call, DevicePtr<const float> bias,
                    const QkvArgs& args) {
  if (call.num_rows == 0) return;
  const QkvAppend append(context, args);
  const Epilogue epilogue{.bias = bias};
  run_products(
      context, call,
      [&](const Tile2D& tile, const MemberScratch& scratch) {
        finish_tile(context, call, tile, epilogue, scratch.sums);
      },
      Phase{append.num_items(), [&](int64_t item, int /*member*/) { append.run(item); }});
}

void run_head(const CpuContext& context, const LinearCall& call, const HeadArgs& args) {
  if (call.num_rows == 0) return;
  const int64_t num_best = args.num_rows - args.num_written;
  context.best.clear(num_best);
  run_products(
      context, call,
      [&](const Tile2D& tile, const MemberScratch& scratch) {
        head_tile(context, call, tile, args, scratch.sums);
      },
      Phase{0, kNothing});
  for (int64_t i = 0; i < num_best; ++i) args.best[i] = context.best.get(i);
}

}  // namespace headrace::cpu
