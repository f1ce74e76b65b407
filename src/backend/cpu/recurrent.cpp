#include "backend/cpu/recurrent.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/norm.h"
#include "backend/cpu/step_plan.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

const CpuStep& state_step_of(const StepGeometry* step) {
  return static_cast<const CpuStep&>(*step);
}

// ---- Convolution --------------------------------------------------------------------------------

// Products of an item, so that claiming it costs little beside; and channels whose taps and rows
// stay in the nearest cache.
constexpr int64_t kConvProducts = 8192;
constexpr int64_t kConvChannels = 256;

// Items are runs of rows times shares of the channels.
class ConvItems {
 public:
  ConvItems(const CausalConvArgs& args)
      : args_(args), runs_(state_step_of(args.step).runs()), channels_(channels_of(args, runs_)) {}
  int64_t num_items() const { return std::ssize(runs_) * num_shares(); }
  void run(const CpuContext& context, int64_t item) const;

 private:
  ConvRowsArgs rows(const RowRun& run, int64_t channel) const;
  static int64_t channels_of(const CausalConvArgs& args, std::span<const RowRun> runs) {
    int64_t most_rows = 1;
    for (const RowRun& run : runs) most_rows = std::max(most_rows, run.num_rows);
    const int64_t wanted = divide_up(kConvProducts / (most_rows * args.num_taps), kPanel) * kPanel;
    return std::max(kConvChannels, wanted);
  }
  int64_t num_shares() const { return divide_up(args_.num_channels, channels_); }

  const CausalConvArgs& args_;
  const std::span<const RowRun> runs_;
  const int64_t channels_;  // of a share
};

// Guesses first: the rows before them may write where both read.
void ConvItems::run(const CpuContext& context, int64_t item) const {
  const RowRun& run = runs_[static_cast<size_t>(item / num_shares())];
  const int64_t channel = item % num_shares() * channels_;
  if (run.num_guesses > 0) {
    const RowRun guesses{run.span, run.first_row + run.num_rows, run.num_guesses, 0};
    context.kernels.conv->function.conv(rows(guesses, channel));
  }
  context.kernels.conv->function.conv(rows(run, channel));
}

ConvRowsArgs ConvItems::rows(const RowRun& run, int64_t channel) const {
  const int64_t first = run.span->first_row * args_.row_stride + channel;
  const StatePlaces state = state_places(*run.span, args_.state);
  ConvRowsArgs rows{};
  rows.x = raw(args_.x) + first;
  rows.row_stride = args_.row_stride;
  rows.in_gate = at_or_null(args_.in_gate, first);
  rows.out_gate = at_or_null(args_.out_gate, first);
  rows.weight = raw(args_.weight) + channel;
  rows.weight_stride = rows.out_stride = rows.state_stride = args_.num_channels;
  rows.bias = at_or_null(args_.bias, channel);
  if (state.before != nullptr) rows.before = state.before + channel;
  // Runs of a span that has several have blocks of their own to read from and to write to.
  const int64_t end = run.first_row + run.num_rows;
  if (end == run.span->num_rows - run.span->num_ahead()) rows.after = state.after + channel;
  if (end == run.span->num_rows && state.ahead != nullptr) rows.after = state.ahead + channel;
  rows.out = raw(args_.out) + run.span->first_row * args_.num_channels + channel;
  rows.first_row = run.first_row;
  rows.num_rows = run.num_rows;
  rows.num_channels = std::min(channels_, args_.num_channels - channel);
  rows.num_taps = args_.num_taps;
  rows.silu = args_.silu;
  return rows;
}
static_assert(kRunRows > kBlockTokens);

// ---- Scan ---------------------------------------------------------------------------------------

// In double precision, so that bits depend neither on the unit nor on the system's library.
float softplus(float x) {
  return x > 20.0f ? x : static_cast<float>(std::log1p(std::exp(double{x})));
}

// The head of a span; the state is still to be named.
ScanRowsArgs head_rows(const ScanArgs& args, const Span& span, int64_t head) {
  const int64_t width = int64_t{args.num_heads} * args.head_dim;
  const int64_t states = int64_t{args.num_groups} * args.state_width;
  const int64_t group = head / (args.num_heads / args.num_groups);
  ScanRowsArgs rows{};
  rows.row_stride = width + 2 * states;
  const float* first = raw(args.mixed) + span.first_row * rows.row_stride;
  rows.x = first + head * args.head_dim;
  rows.b = first + width + group * args.state_width;
  rows.c = rows.b + states;
  rows.skip = raw(args.skip)[head];
  rows.out = raw(args.out) + span.first_row * width + head * args.head_dim;
  rows.out_stride = width;
  rows.head_dim = args.head_dim;
  rows.state_width = args.state_width;
  return rows;
}

// Of the rows of a batch from `first` on.
void fill_time_steps(const ScanArgs& args, int64_t head, int64_t first, int64_t num_rows,
                     const MemberScratch& scratch) {
  const float rate = raw(args.decay_rate)[head], bias = raw(args.time_step_bias)[head];
  const float* steps = raw(args.time_step) + first * args.row_stride + head;
  for (int64_t m = 0; m < num_rows; ++m) {
    const float step = std::clamp(softplus(steps[m * args.row_stride] + bias), args.time_step_min,
                                  args.time_step_max);
    scratch.sums[m] = step;
    scratch.up_sums[m] = static_cast<float>(std::exp(double{rate * step}));
  }
}

void scan_head(const CpuContext& context, const ScanArgs& args, const Span& span, int64_t head,
               int member) {
  const MemberScratch& scratch = context.workspace.member(member);
  ScanRowsArgs rows = head_rows(args, span, head);
  rows.time_steps = scratch.sums;
  rows.decays = scratch.up_sums;
  const StatePlaces state = state_places(span, args.state[static_cast<size_t>(head)]);
  const int64_t first_guess = span.num_rows - span.num_ahead();
  rows.before = state.before;
  for (int64_t first = 0; first < span.num_rows; first += rows.num_rows) {
    const bool is_ahead = first >= first_guess;
    rows.after = is_ahead ? state.ahead : state.after;
    rows.num_rows = std::min(kTileFloats, (is_ahead ? span.num_rows : first_guess) - first);
    fill_time_steps(args, head, span.first_row + first, rows.num_rows, scratch);
    context.kernels.scan->function.scan(rows);
    rows.x += rows.num_rows * rows.row_stride;
    rows.b += rows.num_rows * rows.row_stride;
    rows.c += rows.num_rows * rows.row_stride;
    rows.out += rows.num_rows * rows.out_stride;
    rows.before = rows.after;
  }
}

// out = norm_weight * rms(out * silu(gate)), group by group.
void gate_and_norm(const CpuContext& context, const ScanArgs& args, int64_t row) {
  const int64_t width = int64_t{args.num_heads} * args.head_dim;
  const int64_t group_width = width / args.num_groups;
  float* out = raw(args.out) + row * width;
  GateArgs gate{};
  gate.gate = raw(args.gate) + row * args.row_stride;
  gate.up = gate.out = out;
  gate.gate_stride = gate.up_stride = gate.out_stride = gate.num_outputs = width;
  gate.num_rows = 1;
  gate.kind = GateKind::kSilu;
  context.kernels.gate->function.gate(gate);
  for (int64_t first = 0; first < width; first += group_width) {
    const Norm norm{NormKind::kRms, args.norm_weight + first, args.norm_eps};
    context.kernels.norm->function.norm(norm_rows(norm, out + first, out + first, group_width));
  }
}

}  // namespace

StatePlaces state_places(const Span& span, const KvPlaneView& plane) {
  const int32_t* table = span.tables[plane.table];
  const auto state_of = [&](int32_t block) {
    return reinterpret_cast<float*>(raw(plane.base) +
                                    static_cast<size_t>(block) * plane.block_stride);
  };
  const auto state_in = [&](int64_t position) { return state_of(table[position / kBlockTokens]); };
  const int64_t before = span.first_position - 1, end = span.end_position() - span.num_ahead();
  float* ahead = span.num_ahead() == 0 ? nullptr : state_of(span.states_ahead[plane.table]);
  return {before < 0 ? nullptr : state_in(before), state_in(end - 1), ahead};
}

void run_causal_conv(const CpuContext& context, const CausalConvArgs& args) {
  const ConvItems items(args);
  context.team.run(items.num_items(),
                   [&](int64_t item, int /*member*/) { items.run(context, item); });
}

void run_scan(const CpuContext& context, const ScanArgs& args) {
  const std::span<const Span> spans = state_step_of(args.step).spans();
  const RowItems rows(args.num_rows);
  context.team.run(Phase{std::ssize(spans) * args.num_heads,
                         [&](int64_t item, int member) {
                           const Span& span = spans[static_cast<size_t>(item / args.num_heads)];
                           scan_head(context, args, span, item % args.num_heads, member);
                         }},
                   Phase{rows.num_items(), [&](int64_t item, int /*member*/) {
                           for (int64_t row = rows.first(item); row < rows.end(item); ++row) {
                             gate_and_norm(context, args, row);
                           }
                         }});
}

}  // namespace headrace::cpu
