// A mixture of experts on one row: nothing is gathered, the experts' weights are read in place.
//
// Every member routes, norms and quantises the row for itself, which takes less time than waiting
// for the one that does, and takes panels of the gates and ups of all chosen experts, numbered one
// expert after the other. Of down an item is the same panels of all chosen experts: their weighted
// sum and what follows need no further pass. Slot j is the row at its choice j.
#include <algorithm>

#include "backend/cpu/experts_call.h"
#include "backend/cpu/norm.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

// Shares of num_panels panels, each of so many bytes and `parts` weights.
PanelShares::Plan plan_shares(const Segment& segment, int64_t num_panels, double panel_bytes,
                              int64_t num_members) {
  PanelShares::Plan plan{num_panels, segment.matmul.for_rows(1).tile.outputs / kPanel,
                         kTileFloats / kPanel};
  plan.most =
      std::min(plan.most, static_cast<int64_t>(kMaxItemNs * kWeightBytesPerNs / panel_bytes));
  plan.unit = std::clamp<int64_t>(num_panels / (kItemsPerMember * num_members), 1,
                                  std::max<int64_t>(plan.unit, 1));
  return plan;
}

class RowOfExperts {
 public:
  explicit RowOfExperts(const ExpertsCall& call)
      : call_(call),
        args_(call.args),
        workspace_(call.context.workspace),
        linear_{static_cast<const CpuWeight&>(*args_.gate_up), args_.input, 1, nullptr},
        input_(call.context, linear_),
        num_gate_panels_(call.gate_up(0).segments()[0].num_panels) {}

  void run() {
    const int num_members = call_.context.team.num_threads();
    const Segment& gate = call_.gate_up(0).segments()[0];
    const Segment& down = call_.down(0).segments()[0];
    const auto num_chosen = static_cast<double>(call_.num_chosen);
    first_gate_ = workspace_.shares().divide(plan_shares(gate, call_.num_chosen * num_gate_panels_,
                                                         2 * static_cast<double>(gate.panel_bytes),
                                                         num_members));
    workspace_.second_shares().start(plan_shares(
        down, down.num_panels, num_chosen * static_cast<double>(down.panel_bytes), num_members));
    const bool norms = static_cast<bool>(args_.epilogue.post_norm.weight);
    finishes_panels_ = !norms && args_.epilogue.reduction == nullptr;
    call_.context.team.run(Phase{workspace_.shares().num_takers(),
                                 [this](int64_t item, int member) { run_gate_up(item, member); }},
                           Phase{quantises_activations(call_) ? call_.num_chosen : 0,
                                 [this](int64_t slot, int member) {
                                   quantise_activations(call_, expert_of(slot), slot, slot, 1,
                                                        scratch(member));
                                 }},
                           Phase{workspace_.second_shares().num_takers(),
                                 [this](int64_t, int member) { run_down(member); }},
                           Phase{norms && args_.epilogue.reduction == nullptr ? 1 : 0,
                                 [this](int64_t, int) { finish_rows(call_, 0, 1); }});
    if (args_.epilogue.reduction == nullptr) return;
    args_.epilogue.reduction->reduce(args_.mixed, 1, call_.num_outputs);
    call_.context.team.run(1, [this](int64_t, int) { finish_rows(call_, 0, 1); });
  }

 private:
  static constexpr int64_t kAsTheyAre = -1;

  // The row as a member has it.
  struct OwnRow {
    const int32_t* experts;
    const float* weights;
    RowSource source;
    // The expert whose order of inputs the records have.
    int64_t ordered_for = kAsTheyAre;
  };

  const MemberScratch& scratch(int member) const { return workspace_.member(member); }
  int64_t expert_of(int64_t slot) const { return raw(args_.routing.experts)[slot]; }

  OwnRow route(int member) const {
    float* room = scratch(member).attention + 5 * kMaxExperts;
    static_assert(7 * kMaxExperts <= kAttentionScratchFloats);
    auto* experts = reinterpret_cast<int32_t*>(room);
    float* weights = room + kMaxExperts;
    choose_experts(args_.route, raw(args_.route.logits),
                   {args_.routing.num_experts, call_.num_chosen, experts, weights},
                   router_scratch(scratch(member)));
    return {experts, weights, {}};
  }

  // For the phases to come and the caller.
  void publish(const OwnRow& own) const {
    std::copy_n(own.experts, call_.num_chosen, raw(args_.routing.experts));
    std::copy_n(own.weights, call_.num_chosen, raw(args_.routing.weights));
    if (args_.shared) *raw(args_.shared_factors) = shared_factor(args_, own.source.rows);
    count_rows(args_);
  }

  // The first item publishes what the row's choices are.
  void run_gate_up(int64_t item, int member) const {
    Piece piece = item == 0 ? first_gate_ : workspace_.shares().take(member);
    if (piece.count == 0) return;
    OwnRow own = route(member);
    const int64_t expert = own.experts[piece.first / num_gate_panels_];
    const int64_t panel = piece.first % num_gate_panels_;
    prefetch_start({&call_.gate_up(expert).segments()[0], 0, 1, panel, 1});
    own.source = input_.of_member(member);
    if (item == 0) publish(own);
    for (; piece.count > 0; piece = workspace_.shares().take(member)) {
      multiply_gate_up(piece, member, &own);
    }
  }

  void multiply_gate_up(const Piece& piece, int member, OwnRow* own) const {
    const int64_t end = piece.first + piece.count;
    for (int64_t at = piece.first; at < end;) {
      const int64_t slot = at / num_gate_panels_, first = at % num_gate_panels_;
      const int64_t count = std::min(end - at, num_gate_panels_ - first);
      const int64_t expert = own->experts[slot];
      const CpuWeight& weight = call_.gate_up(expert);
      order_inputs(weight, expert, member, own);
      const LinearCall linear{weight, args_.input, 1,
                              raw(args_.slot_activations) + slot * call_.inner};
      compute_gated(call_.context, linear, own->source, {&weight.segments()[0], 0, 1, first, count},
                    call_.gating(expert), scratch(member));
      at += count;
    }
  }

  // Records anew where an expert's inputs have an order of their own, and after such an expert.
  void order_inputs(const CpuWeight& weight, int64_t expert, int member, OwnRow* own) const {
    const int64_t wanted = weight.input_order().empty() ? kAsTheyAre : expert;
    if (own->ordered_for == wanted) return;
    own->ordered_for = wanted;
    const RowSource& source = own->source;
    if (wanted == kAsTheyAre) {
      return input_.quantise_row(source.rows, 0, source, scratch(member));
    }
    const Input input(on_device(source.rows));
    const LinearCall linear{weight, input, 1, nullptr};
    InputRows(call_.context, linear).quantise_row(source.rows, 0, source, scratch(member));
  }

  // Any member may have any item, and some none: nothing is set aside for one.
  void run_down(int member) const {
    PanelShares& shares = workspace_.second_shares();
    for (Piece piece = shares.take(member); piece.count > 0; piece = shares.take(member)) {
      mix_panels(piece, member);
    }
  }

  // The sum over the experts, in the order of the choices, of some panels.
  void mix_panels(const Piece& piece, int member) const {
    const int64_t column = piece.first * kPanel;
    const int64_t count = std::min(piece.count * kPanel, call_.num_outputs - column);
    float* y = scratch(member).up_sums;
    std::fill_n(y, count, 0.0f);
    for (int64_t slot = 0; slot < call_.num_chosen; ++slot) {
      const int64_t expert = expert_of(slot);
      const CpuWeight& weight = call_.down(expert);
      const LinearCall linear{weight, args_.input, 1, nullptr};
      compute_sums(linear, call_.down_source(expert, slot),
                   {&weight.segments()[0], 0, 1, piece.first, piece.count}, scratch(member));
      float* sums = scratch(member).sums;
      if (args_.down_bias) {
        add_to(raw(args_.down_bias) + expert * call_.num_outputs + column, count, sums);
      }
      add_weighted(raw(args_.routing.weights)[slot], sums, count, y);
    }
    if (args_.shared) {
      add_weighted(*raw(args_.shared_factors), raw(args_.shared) + column, count, y);
    }
    finish_panels(column, count, y);
  }

  static void add_to(const float* x, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += x[i];
  }

  void finish_panels(int64_t column, int64_t count, const float* y) const {
    if (!finishes_panels_) {
      std::copy_n(y, count, raw(args_.mixed) + column);
      return;
    }
    FinishArgs args{};
    args.sums = y;
    args.residual = at_or_null(args_.epilogue.residual, column);
    args.out = raw(args_.out) + column;
    args.sums_stride = args.out_stride = args.num_outputs = count;
    args.num_rows = 1;
    args.scale = args_.epilogue.scale;
    call_.context.kernels.finish->function.finish(args);
  }

  const ExpertsCall& call_;
  const ExpertsArgs& args_;
  const CpuWorkspace& workspace_;
  const LinearCall linear_;
  const InputRows input_;
  const int64_t num_gate_panels_;  // of one expert
  Piece first_gate_{};
  bool finishes_panels_ = false;
};

}  // namespace

void run_experts_row(const ExpertsCall& call) { RowOfExperts(call).run(); }

}  // namespace headrace::cpu
