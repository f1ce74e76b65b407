#include "backend/cpu/experts_call.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/norm.h"
#include "backend/device_access.h"

namespace headrace::cpu {

namespace {

// Of a slot in a place of rows of up to `width` inputs: room for floats or any records.
constexpr int64_t slot_bytes(int64_t width) {
  static_assert(activation_record_bytes(ActivationType::kBF16x2) <= kSliceInputs * 4 &&
                activation_record_bytes(ActivationType::kInt16) <= kSliceInputs * 4);
  return padded_expert_inputs(width) * int64_t{sizeof(float)};
}

uint8_t* place_of(DevicePtr<float> room, int64_t width, int64_t slot) {
  return reinterpret_cast<uint8_t*>(raw(room)) + slot * slot_bytes(width);
}

}  // namespace

Gating ExpertsCall::gating(int64_t expert) const {
  const GateForm form = args.clamp.limit > 0
                            ? GateForm{GateKind::kClampedSwiglu, args.clamp.alpha, args.clamp.limit}
                            : gate_form(args.activation);
  return {form, at_or_null(args.gate_up_bias, expert * 2 * inner)};
}

RowSource ExpertsCall::gate_up_source(int64_t expert, int64_t first_slot) const {
  uint8_t* places[] = {place_of(args.slot_inputs, std::max(width, inner), first_slot),
                       place_of(args.slot_outputs, std::max(width, num_outputs), first_slot)};
  int used = 0;
  RowSource source{};
  const CpuWeight& weight = gate_up(expert);
  if (weight.takes(ActivationType::kF32)) {
    source.rows = reinterpret_cast<const float*>(places[used++]);
  }
  for (const KernelRow* row : {context.kernels.quantise, context.kernels.quantise_dense}) {
    if (row == nullptr || !weight.takes(row->activation)) continue;
    source.activations[is_of_codes(row->activation)] = places[used++];
  }
  return source;
}

RowSource ExpertsCall::down_source(int64_t /*expert*/, int64_t first_slot) const {
  uint8_t* records = place_of(args.slot_inputs, std::max(width, inner), first_slot);
  return {raw(args.slot_activations) + first_slot * inner, {records, records}};
}

void quantise_activations(const ExpertsCall& call, int64_t expert, int64_t first_slot, int64_t slot,
                          int64_t num_rows, const MemberScratch& scratch) {
  const Input input(call.args.slot_activations + first_slot * call.inner);
  const LinearCall linear{call.down(expert), input, num_rows, nullptr};
  InputRows(call.context, linear)
      .quantise_row(raw(call.args.slot_activations) + slot * call.inner, slot - first_slot,
                    call.down_source(expert, first_slot), scratch);
}

bool quantises_activations(const ExpertsCall& call) {
  const Input input(call.args.slot_activations);
  const LinearCall linear{static_cast<const CpuWeight&>(*call.args.down), input, 1, nullptr};
  return !InputRows(call.context, linear).kernels().empty();
}

RouterScratch router_scratch(const MemberScratch& scratch) {
  static_assert(5 * kMaxExperts <= kAttentionScratchFloats);
  float* next = scratch.attention;
  return {next, next + kMaxExperts, next + 2 * kMaxExperts,
          reinterpret_cast<double*>(next + 3 * kMaxExperts)};
}

float shared_factor(const ExpertsArgs& args, const float* n) {
  if (!args.shared_gate) return 1.0f;
  const float* gate = raw(args.shared_gate);
  double sum = 0;
  for (int64_t i = 0; i < args.gate_up->num_inputs(); ++i) sum += double{gate[i]} * double{n[i]};
  return static_cast<float>(1 / (1 + std::exp(-sum)));
}

void add_weighted(float weight, const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] += weight * x[i];
}

void count_rows(const ExpertsArgs& args) {
  if (!args.counts) return;
  const int32_t* experts = raw(args.routing.experts);
  const int64_t num_slots = args.routing.num_rows * args.routing.num_chosen;
  for (int64_t i = 0; i < num_slots; ++i) ++raw(args.counts)[experts[i]];
}

void finish_rows(const ExpertsCall& call, int64_t first, int64_t end) {
  const Epilogue& epilogue = call.args.epilogue;
  const int64_t offset = first * call.num_outputs;
  const float* y = raw(call.args.mixed) + offset;
  float* out = raw(call.args.out) + offset;
  if (epilogue.post_norm.weight) {
    NormRowsArgs rows = norm_rows(epilogue.post_norm, y, out, call.num_outputs);
    rows.residual = at_or_null(epilogue.residual, offset);
    rows.num_rows = end - first;
    rows.scale = epilogue.scale;
    return call.context.kernels.norm->function.norm(rows);
  }
  FinishArgs sums{};
  sums.sums = y;
  sums.sums_stride = sums.out_stride = sums.num_outputs = call.num_outputs;
  sums.residual = at_or_null(epilogue.residual, offset);
  sums.out = out;
  sums.num_rows = end - first;
  sums.scale = epilogue.scale;
  call.context.kernels.finish->function.finish(sums);
}

}  // namespace headrace::cpu
