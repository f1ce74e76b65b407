#include "backend/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/matmul.h"
#include "backend/cpu/norm.h"
#include "backend/cpu/router.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

// Room for what a member makes of one row's logits.
RouterScratch router_scratch(const MemberScratch& scratch) {
  static_assert(2 * kMaxExperts <= kTileFloats);
  return {scratch.sums, scratch.sums + kMaxExperts, scratch.up_sums};
}

// Slots by expert, in each by row.
void place(const Routing& routing) {
  const int64_t num_slots = routing.num_rows * routing.num_chosen;
  const int32_t* experts = raw(routing.experts);
  int32_t* next = raw(routing.first_slot);  // of each expert, while slots are given out
  std::fill_n(next, routing.num_experts + 1, 0);
  for (int64_t i = 0; i < num_slots; ++i) ++next[experts[i] + 1];
  for (int64_t e = 0; e < routing.num_experts; ++e) next[e + 1] += next[e];
  for (int64_t i = 0; i < num_slots; ++i) {
    const int32_t slot = next[experts[i]]++;
    raw(routing.slots)[i] = slot;
    raw(routing.rows)[slot] = static_cast<int32_t>(i / routing.num_chosen);
  }
  // Each expert's next slot is now the first one of the expert after it.
  std::copy_backward(next, next + routing.num_experts, next + routing.num_experts + 1);
  next[0] = 0;
}

// What an op of experts knows of its rows.
struct ExpertsCall {
  const CpuContext& context;
  const ExpertsArgs& args;
  int64_t num_rows = args.routing.num_rows;
  int64_t num_slots = num_rows * args.routing.num_chosen;
  int64_t width = args.gate_up->num_inputs();      // K
  int64_t inner = args.down->num_inputs();         // I
  int64_t num_outputs = args.down->num_outputs();  // N

  const float* input_rows() const {
    return args.input.norm.weight ? raw(args.input.normed) : raw(args.input.x);
  }
};

// sigmoid(gate . x), the products summed in order.
float shared_factor(const float* gate, const float* x, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += double{gate[i]} * double{x[i]};
  return static_cast<float>(1 / (1 + std::exp(-sum)));
}

// Norms a row, routes it and weighs its shared experts.
void prepare_row(const ExpertsCall& call, int64_t row, const MemberScratch& scratch) {
  const ExpertsArgs& args = call.args;
  if (args.input.norm.weight) {
    call.context.kernels.norm->function.norm(
        norm_rows(args.input.norm, raw(args.input.x) + row * call.width,
                  raw(args.input.normed) + row * call.width, call.width));
  }
  choose_experts(args.route, args.routing, row, router_scratch(scratch));
  if (!args.shared) return;
  raw(args.shared_factors)[row] =
      args.shared_gate
          ? shared_factor(raw(args.shared_gate), call.input_rows() + row * call.width, call.width)
          : 1.0f;
}

void gather_slot(const ExpertsCall& call, int64_t slot) {
  std::memcpy(raw(call.args.slot_inputs) + slot * call.width,
              call.input_rows() + raw(call.args.routing.rows)[slot] * call.width,
              static_cast<size_t>(call.width) * sizeof(float));
}

GateForm form_of(const ExpertsArgs& args) {
  if (args.clamp.limit > 0) {
    return {GateKind::kClampedSwiglu, args.clamp.alpha, args.clamp.limit};
  }
  return gate_form(args.activation);
}

// The experts' parts of the results, each over its slots.
void run_chosen(const ExpertsCall& call) {
  const ExpertsArgs& args = call.args;
  const int32_t* first_slot = raw(args.routing.first_slot);
  for (int64_t e = 0; e < args.routing.num_experts; ++e) {
    const int64_t first = first_slot[e], count = first_slot[e + 1] - first;
    if (count == 0) continue;
    const auto& gate_up = static_cast<const CpuWeight&>(args.gate_up->expert(e));
    const auto& down = static_cast<const CpuWeight&>(args.down->expert(e));
    const DevicePtr<float> activations = args.slot_activations + first * call.inner;
    run_gated_linear(
        call.context,
        {gate_up, Input(args.slot_inputs + first * call.width), count, raw(activations)},
        form_of(args), at_or_null(args.gate_up_bias, e * 2 * call.inner));
    Epilogue epilogue;
    if (args.down_bias) epilogue.bias = args.down_bias + e * call.num_outputs;
    run_linear(call.context,
               {down, Input(activations), count, raw(args.slot_outputs) + first * call.num_outputs},
               epilogue);
  }
}

// y[m] in the order of the row's choices.
void mix(const ExpertsCall& call, int64_t row, float* y) {
  const Routing& routing = call.args.routing;
  const int64_t width = call.num_outputs;
  const int32_t* slots = raw(routing.slots) + row * routing.num_chosen;
  const float* weights = raw(routing.weights) + row * routing.num_chosen;
  std::fill_n(y, width, 0.0f);
  for (int64_t j = 0; j < routing.num_chosen; ++j) {
    const float* result = raw(call.args.slot_outputs) + slots[j] * width;
    for (int64_t i = 0; i < width; ++i) y[i] += weights[j] * result[i];
  }
  if (!call.args.shared) return;
  const float factor = raw(call.args.shared_factors)[row];
  const float* shared = raw(call.args.shared) + row * width;
  for (int64_t i = 0; i < width; ++i) y[i] += factor * shared[i];
}

// out = residual + scale * post_norm(y)
void finish(const CpuContext& context, const ExpertsArgs& args, int64_t row, const float* y) {
  const int64_t width = args.down->num_outputs();
  const Epilogue& epilogue = args.epilogue;
  const float* residual = epilogue.residual ? raw(epilogue.residual) + row * width : nullptr;
  if (epilogue.post_norm.weight) {
    NormRowsArgs rows{};
    rows.x = y;
    rows.weight = raw(epilogue.post_norm.weight);
    rows.residual = residual;
    rows.out = raw(args.out) + row * width;
    rows.num_rows = 1;
    rows.width = width;
    rows.eps = epilogue.post_norm.eps;
    rows.scale = epilogue.scale;
    rows.subtract_mean = epilogue.post_norm.kind == NormKind::kLayer;
    return context.kernels.norm->function.norm(rows);
  }
  FinishArgs sums{};
  sums.sums = y;
  sums.sums_stride = sums.out_stride = sums.num_outputs = width;
  sums.residual = residual;
  sums.out = raw(args.out) + row * width;
  sums.num_rows = 1;
  sums.scale = epilogue.scale;
  context.kernels.finish->function.finish(sums);
}

}  // namespace

void run_experts(const CpuContext& context, const ExpertsArgs& args) {
  const ExpertsCall call{context, args};
  const RowItems rows(call.num_rows), slots(call.num_slots);
  const auto each = [](const RowItems& items, int64_t item, const auto& visit) {
    for (int64_t i = items.first(item); i < items.end(item); ++i) visit(i);
  };
  context.team.run(Phase{rows.num_items(),
                         [&](int64_t item, int member) {
                           const MemberScratch& scratch = context.workspace.member(member);
                           each(rows, item, [&](int64_t row) { prepare_row(call, row, scratch); });
                         }},
                   Phase{1, [&](int64_t, int) { place(args.routing); }},
                   Phase{slots.num_items(), [&](int64_t item, int) {
                           each(slots, item, [&](int64_t slot) { gather_slot(call, slot); });
                         }});
  run_chosen(call);
  float* y = raw(args.mixed);
  const auto mix_rows = [&](int64_t item, int) {
    each(rows, item, [&](int64_t row) { mix(call, row, y + row * call.num_outputs); });
  };
  const auto finish_rows = [&](int64_t item, int) {
    each(rows, item, [&](int64_t row) { finish(context, args, row, y + row * call.num_outputs); });
  };
  if (args.epilogue.reduction == nullptr) {
    return context.team.run(Phase{rows.num_items(), mix_rows},
                            Phase{rows.num_items(), finish_rows});
  }
  context.team.run(rows.num_items(), mix_rows);
  args.epilogue.reduction->reduce(args.mixed, call.num_rows, call.num_outputs);
  context.team.run(rows.num_items(), finish_rows);
}

}  // namespace headrace::cpu
