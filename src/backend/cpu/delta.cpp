#include "backend/cpu/delta.h"

#include "backend/cpu/norm.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/step_plan.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

static_assert(cpu::kMaxDeltaDim == headrace::kMaxDeltaDim);

int64_t qkv_width(const DeltaArgs& op) {
  return int64_t{2} * op.num_key_heads * op.key_dim + int64_t{op.num_value_heads} * op.value_dim;
}

// Rows made ready, a run of them each.
void make_inputs(const CpuContext& context, const DeltaArgs& op, int64_t first, int64_t end) {
  DeltaInputsArgs rows{};
  rows.qkv_stride = qkv_width(op);
  rows.qkv = raw(op.qkv) + first * rows.qkv_stride;
  rows.num_rows = end - first;
  rows.key_heads = op.num_key_heads;
  rows.key_dim = op.key_dim;
  rows.value_heads = op.num_value_heads;
  rows.beta = raw(op.beta) + first * op.beta_stride;
  rows.beta_stride = op.beta_stride;
  rows.decay = raw(op.decay) + first * op.decay_stride;
  rows.decay_stride = op.decay_stride;
  rows.decay_dims = op.decay_dims;
  rows.decay_rate = raw(op.decay_rate);
  rows.decay_bias = raw(op.decay_bias);
  context.kernels.delta_inputs->function.delta_inputs(rows);
}

// The recurrences: of each span and value head some panels of the state.
class DeltaItems {
 public:
  DeltaItems(const CpuContext& context, const DeltaArgs& op)
      : context_(context),
        op_(op),
        spans_(static_cast<const CpuStep&>(*op.step).spans()),
        num_panels_(divide_up(int64_t{op.value_dim}, int64_t{kPanel})),
        num_shares_(divide_up(num_panels_, kDeltaPanels)) {}

  int64_t num_items() const { return std::ssize(spans_) * op_.num_value_heads * num_shares_; }

  void run(int64_t item) const {
    const int64_t share = item % num_shares_, head = item / num_shares_ % op_.num_value_heads;
    const Span& span = spans_[static_cast<size_t>(item / num_shares_ / op_.num_value_heads)];
    DeltaRowsArgs rows{};
    rows.key_dim = op_.key_dim;
    rows.value_dim = op_.value_dim;
    rows.first_panel = share * kDeltaPanels;
    rows.num_panels = std::min(kDeltaPanels, num_panels_ - rows.first_panel);
    const StatePlaces state = state_places(span, op_.state[static_cast<size_t>(head)]);
    const int64_t num_guesses = span.num_ahead(), first_guess = span.num_rows - num_guesses;
    set_rows(span.first_row, head, &rows);
    rows.num_rows = first_guess;
    rows.from = state.before;
    rows.to = state.after;
    context_.kernels.delta->function.delta(rows);
    if (num_guesses == 0) return;
    set_rows(span.first_row + first_guess, head, &rows);
    rows.num_rows = num_guesses;
    rows.from = state.after;
    rows.to = state.ahead;
    context_.kernels.delta->function.delta(rows);
  }

 private:
  void set_rows(int64_t row, int64_t head, DeltaRowsArgs* rows) const {
    const int64_t stride = qkv_width(op_), keys = int64_t{op_.num_key_heads} * op_.key_dim;
    const int64_t key_head = op_.tiled_heads ? head % op_.num_key_heads
                                             : head / (op_.num_value_heads / op_.num_key_heads);
    const int64_t out_stride = int64_t{op_.num_value_heads} * op_.value_dim;
    const float* qkv = raw(op_.qkv) + row * stride;
    rows->q = qkv + key_head * op_.key_dim;
    rows->k = rows->q + keys;
    rows->v = qkv + 2 * keys + head * op_.value_dim;
    rows->qkv_stride = stride;
    rows->beta = raw(op_.beta) + row * op_.beta_stride + head;
    rows->beta_stride = op_.beta_stride;
    rows->decay = raw(op_.decay) + row * op_.decay_stride + head * op_.decay_dims;
    rows->decay_stride = op_.decay_stride;
    rows->decay_dims = op_.decay_dims;
    rows->out = raw(op_.out) + row * out_stride + head * op_.value_dim;
    rows->out_stride = out_stride;
  }

  const CpuContext& context_;
  const DeltaArgs& op_;
  const std::span<const Span> spans_;
  const int64_t num_panels_;
  const int64_t num_shares_;
};

// out = norm(out) * activation(gate), of a row: the norm of each head, then the gate of all.
void finish_row(const CpuContext& context, const DeltaArgs& op, int64_t row) {
  const int64_t width = int64_t{op.num_value_heads} * op.value_dim;
  float* out = raw(op.out) + row * width;
  const Norm norm{NormKind::kRms, op.norm_weight, op.norm_eps};
  NormRowsArgs heads = norm_rows(norm, out, out, op.value_dim);
  heads.num_rows = op.num_value_heads;
  context.kernels.norm->function.norm(heads);
  GateArgs gate{};
  gate.gate = raw(op.gate) + row * op.gate_stride;
  gate.up = gate.out = out;
  gate.num_rows = 1;
  gate.num_outputs = width;
  gate.kind = op.activation == Activation::kSigmoid ? GateKind::kSigmoid : GateKind::kSilu;
  context.kernels.gate->function.gate(gate);
}

}  // namespace

void run_delta(const CpuContext& context, const DeltaArgs& op) {
  const RowItems rows(op.num_rows);
  const DeltaItems items(context, op);
  const auto ready = [&](int64_t item, int /*member*/) {
    make_inputs(context, op, rows.first(item), rows.end(item));
  };
  const auto recur = [&](int64_t item, int /*member*/) { items.run(item); };
  const auto finish = [&](int64_t item, int /*member*/) {
    for (int64_t row = rows.first(item); row < rows.end(item); ++row) {
      finish_row(context, op, row);
    }
  };
  context.team.run(Phase{rows.num_items(), ready}, Phase{items.num_items(), recur},
                   Phase{rows.num_items(), finish});
}

}  // namespace headrace::cpu
