#include "backend/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/matmul.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kRowsPerItem = 8;
static_assert(kMaxExperts <= kTileFloats);  // a row's scores fit a member's scratch

// Of those not taken; of equal scores the first.
int64_t best_of(const float* scores, int64_t count, const float* taken) {
  int64_t best = -1;
  for (int64_t e = 0; e < count; ++e) {
    if (taken[e] == 0 && (best < 0 || scores[e] > scores[best])) best = e;
  }
  return best;
}

// In double precision, so that the float32 scores do not depend on how the system's library rounds
// exp, or on an order of summation.
void softmax(const float* logits, int64_t count, float* scores) {
  const double top = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += std::exp(logits[e] - top);
  for (int64_t e = 0; e < count; ++e) {
    scores[e] = static_cast<float>(std::exp(logits[e] - top) / sum);
  }
}

// The experts of one row and their weights, best first.
void choose(const RouteArgs& args, int64_t row, const MemberScratch& scratch) {
  const Routing& routing = args.routing;
  const int64_t num_experts = routing.num_experts, num_chosen = routing.num_chosen;
  float* scores = scratch.sums;
  float* taken = scratch.up_sums;
  softmax(raw(args.logits) + row * num_experts, num_experts, scores);
  std::fill_n(taken, num_experts, 0.0f);
  int32_t* experts = raw(routing.experts) + row * num_chosen;
  float* weights = raw(routing.weights) + row * num_chosen;
  float sum = 0;
  for (int64_t j = 0; j < num_chosen; ++j) {
    const int64_t best = best_of(scores, num_experts, taken);
    taken[best] = 1;
    experts[j] = static_cast<int32_t>(best);
    weights[j] = scores[best];
    sum += weights[j];
  }
  for (int64_t j = 0; j < num_chosen; ++j) {
    weights[j] = args.scale * (args.normalise ? weights[j] / sum : weights[j]);
  }
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

// The rows of a batch in runs, an item each.
class Runs {
 public:
  explicit Runs(int64_t num_rows) : num_rows_(num_rows) {}
  int64_t num_items() const { return divide_up(num_rows_, kRowsPerItem); }
  template <typename F>
  void of(int64_t item, const F& each) const {
    const int64_t end = std::min((item + 1) * kRowsPerItem, num_rows_);
    for (int64_t row = item * kRowsPerItem; row < end; ++row) each(row);
  }

 private:
  int64_t num_rows_;
};

// The experts' parts of the results, each over its slots.
void run_chosen(const CpuContext& context, const ExpertsArgs& args) {
  const int64_t width = args.gate_up->num_inputs(), inner = args.down->num_inputs();
  const int64_t num_outputs = args.down->num_outputs();
  const int32_t* first_slot = raw(args.routing.first_slot);
  for (int64_t e = 0; e < args.routing.num_experts; ++e) {
    const int64_t first = first_slot[e], count = first_slot[e + 1] - first;
    if (count == 0) continue;
    const auto& gate_up = static_cast<const CpuWeight&>(args.gate_up->expert(e));
    const auto& down = static_cast<const CpuWeight&>(args.down->expert(e));
    const Input inputs(args.slot_inputs + first * width);
    const Input activations(args.slot_activations + first * inner);
    run_gated_linear(context, {gate_up, inputs, count, raw(args.slot_activations) + first * inner},
                     args.activation, nullptr);
    run_linear(context, {down, activations, count, raw(args.slot_outputs) + first * num_outputs},
               {});
  }
}

// y[m] in the order of the row's choices.
void mix(const ExpertsArgs& args, int64_t row, float* y) {
  const Routing& routing = args.routing;
  const int64_t width = args.down->num_outputs();
  const int32_t* slots = raw(routing.slots) + row * routing.num_chosen;
  const float* weights = raw(routing.weights) + row * routing.num_chosen;
  std::fill_n(y, width, 0.0f);
  for (int64_t j = 0; j < routing.num_chosen; ++j) {
    const float* result = raw(args.slot_outputs) + slots[j] * width;
    for (int64_t i = 0; i < width; ++i) y[i] += weights[j] * result[i];
  }
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

void run_route(const CpuContext& context, const RouteArgs& args) {
  const Runs runs(args.routing.num_rows);
  context.team.run(Phase{runs.num_items(),
                         [&](int64_t item, int member) {
                           const MemberScratch& scratch = context.workspace.member(member);
                           runs.of(item, [&](int64_t row) { choose(args, row, scratch); });
                         }},
                   Phase{1, [&](int64_t, int) { place(args.routing); }});
}

void run_experts(const CpuContext& context, const ExpertsArgs& args) {
  const int64_t num_rows = args.routing.num_rows, width = args.gate_up->num_inputs();
  const int64_t num_outputs = args.down->num_outputs();
  const Runs slots(num_rows * args.routing.num_chosen), rows(num_rows);
  context.team.run(slots.num_items(), [&](int64_t item, int) {
    slots.of(item, [&](int64_t slot) {
      std::memcpy(raw(args.slot_inputs) + slot * width,
                  raw(args.x) + raw(args.routing.rows)[slot] * width,
                  static_cast<size_t>(width) * sizeof(float));
    });
  });
  run_chosen(context, args);
  float* y = raw(args.mixed);
  const auto mix_rows = [&](int64_t item, int) {
    rows.of(item, [&](int64_t row) { mix(args, row, y + row * num_outputs); });
  };
  const auto finish_rows = [&](int64_t item, int) {
    rows.of(item, [&](int64_t row) { finish(context, args, row, y + row * num_outputs); });
  };
  if (args.epilogue.reduction == nullptr) {
    return context.team.run(Phase{rows.num_items(), mix_rows},
                            Phase{rows.num_items(), finish_rows});
  }
  context.team.run(rows.num_items(), mix_rows);
  args.epilogue.reduction->reduce(args.mixed, num_rows, num_outputs);
  context.team.run(rows.num_items(), finish_rows);
}

}  // namespace headrace::cpu
