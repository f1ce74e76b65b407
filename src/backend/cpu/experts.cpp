#include "backend/cpu/experts.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/expert_tiles.h"
#include "backend/cpu/experts_call.h"
#include "backend/cpu/norm.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {

namespace {

// Row `row` of `num_rows` as activations.
struct RowAmong {
  uint8_t* rows;
  int64_t row, num_rows;
};

// What is stored of a row of `width` inputs to where another set of rows has it.
void copy_activations(ActivationType type, int64_t width, const RowAmong& from,
                      const RowAmong& to) {
  const int64_t num_slices = divide_up(width, kSliceInputs);
  const int64_t record = activation_record_bytes(type);
  const int64_t from_stride = activation_stride(type, from.num_rows, width);
  const int64_t to_stride = activation_stride(type, to.num_rows, width);
  const auto copy = [&](int64_t to_at, int64_t from_at, int64_t num_bytes) {
    std::memcpy(to.rows + to_at, from.rows + from_at, static_cast<size_t>(num_bytes));
  };
  if (!lies_in_tiles(type)) {
    for (int64_t slice = 0; slice < num_slices; ++slice) {
      copy(slice * to_stride + to.row * record, slice * from_stride + from.row * record, record);
    }
    return;
  }
  const RowInTiles at = row_in_tiles(type, from.row, from.num_rows, from_stride);
  const RowInTiles out = row_in_tiles(type, to.row, to.num_rows, to_stride);
  for (int64_t line = 0; line < num_slices * kSliceLines; ++line) {
    copy(out.line + line * out.pitch, at.line + line * at.pitch, kActivationLine);
  }
  if (type != ActivationType::kFixed) return;
  for (int64_t slice = 0; slice < num_slices; ++slice) {
    const int64_t to_slice = slice * out.slice_pitch, from_slice = slice * at.slice_pitch;
    copy(out.unit + to_slice, at.unit + from_slice, kFixedUnitBytes);
    copy(out.sums + to_slice, at.sums + from_slice, kFixedSumsBytes);
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

// The phases of an op: rows are normed, quantised and routed; slots take what their experts read;
// gate and up; activations are quantised; down; rows are summed. Slots and tiles are known when the
// rows are routed.
class BatchOfExperts {
 public:
  BatchOfExperts(const ExpertsCall& call, bool has_deltas)
      : call_(call),
        has_deltas_(has_deltas),
        args_(call.args),
        linear_{static_cast<const CpuWeight&>(*args_.gate_up), args_.input, call.num_rows, nullptr},
        input_(call.context, linear_),
        gate_up_tiles_(*args_.gate_up, call.context.workspace.expert_items(0)),
        down_tiles_(*args_.down, call.context.workspace.expert_items(1)) {
    const int64_t items = kItemsPerMember * call.context.team.num_threads();
    rows_per_item_ = std::clamp<int64_t>(call.num_rows / items, 1, kRowsPerItem);
    num_slots_ = call.num_rows * call.num_chosen;
  }

  void run() {
    const auto each_row = [this](const auto& visit) {
      return [this, &visit](int64_t item, int member) { rows_of(item, member, visit); };
    };
    const auto prepare = [this](int64_t row, int member) { prepare_row(row, member); };
    const auto mix = [this](int64_t row, int /*member*/) { mix_row(row); };
    const bool quantises = has_deltas_ || quantises_activations(call_);
    const int64_t num_quantised = quantises ? num_slot_items() : 0;
    call_.context.team.run(
        Phase{num_row_items(), each_row(prepare)},
        CountedPhase{[this] { return place_slots(); },
                     [this](int64_t item, int member) { gather(item, member); }},
        CountedPhase{[this] { return plan(gate_up_tiles_); },
                     [this](int64_t item, int member) { run_gate_up(item, member); }},
        Phase{num_quantised, [this](int64_t item, int member) { quantise(item, member); }},
        CountedPhase{[this] { return plan(down_tiles_); },
                     [this](int64_t item, int member) { run_down(item, member); }},
        Phase{num_row_items(), each_row(mix)});
    if (args_.epilogue.reduction == nullptr) return;
    args_.epilogue.reduction->reduce(args_.mixed, call_.num_rows, call_.num_outputs);
    const auto finish = [this](int64_t row, int /*member*/) { finish_rows(call_, row, row + 1); };
    call_.context.team.run(num_row_items(), each_row(finish));
  }

 private:
  int64_t num_row_items() const { return divide_up(call_.num_rows, rows_per_item_); }
  int64_t num_slot_items() const { return divide_up(num_slots_, kRowsPerItem); }
  const MemberScratch& scratch(int member) const { return call_.context.workspace.member(member); }
  const int32_t* first_slots() const { return raw(args_.routing.first_slot); }

  template <typename Visit>
  void rows_of(int64_t item, int member, const Visit& visit) const {
    const int64_t end = std::min((item + 1) * rows_per_item_, call_.num_rows);
    for (int64_t row = item * rows_per_item_; row < end; ++row) visit(row, member);
  }
  // visit(expert, first slot of it, slot) for the slots of an item.
  template <typename Visit>
  void slots_of(int64_t item, const Visit& visit) const {
    const int32_t* first = first_slots();
    const int64_t begin = item * kRowsPerItem, end = std::min(begin + kRowsPerItem, num_slots_);
    const int32_t* next = std::upper_bound(first, first + args_.routing.num_experts, begin);
    for (int64_t slot = begin; slot < end; ++slot) {
      while (*next <= slot) ++next;
      visit(next - first - 1, *(next - 1), slot);
    }
  }

  const float* normed_row(int64_t row) const {
    return (args_.input.norm.weight ? raw(args_.input.normed) : raw(args_.input.x)) +
           row * call_.width;
  }

  void prepare_row(int64_t row, int member) const {
    if (args_.input.norm.weight) {
      call_.context.kernels.norm->function.norm(
          norm_rows(args_.input.norm, raw(args_.input.x) + row * call_.width,
                    raw(args_.input.normed) + row * call_.width, call_.width));
    }
    const Routing& routing = args_.routing;
    choose_experts(
        args_.route, raw(args_.route.logits) + row * routing.num_experts,
        {routing.num_experts, call_.num_chosen, raw(routing.experts) + row * call_.num_chosen,
         raw(routing.weights) + row * call_.num_chosen},
        router_scratch(scratch(member)));
    if (args_.shared) raw(args_.shared_factors)[row] = shared_factor(args_, normed_row(row));
    input_.quantise_row(normed_row(row), row, input_.all(), scratch(member));
  }

  int64_t place_slots() {
    place(args_.routing);
    count_rows(args_);
    if (has_deltas_) find_deltas();
    return num_slot_items();
  }
  // What adapters add to the slots, whose rows are those of the step.
  void find_deltas() {
    StepAdapters& adapters = call_.context.adapters;
    for (const int product : {0, 1}) adapters.expert_rows(product).clear();
    for (int64_t item = 0; item < num_slot_items(); ++item) {
      slots_of(item, [&](int64_t expert, int64_t, int64_t slot) {
        const CpuAdapter* adapter = adapters.of_row(raw(args_.routing.rows)[slot]);
        if (adapter == nullptr) return;
        adapters.expert_rows(0).add(slot, adapter->of_products(call_.gate_up(expert)));
        adapters.expert_rows(1).add(slot, adapter->of_products(call_.down(expert)));
      });
    }
    for (const int product : {0, 1}) {
      deltas_[product] = adapters.expert_rows(product).make(num_slots_, adapters.kernels());
    }
  }
  // Those of a product of the expert whose slots begin at `first`.
  CallDeltas deltas_of(int product, int64_t first) const {
    CallDeltas deltas = deltas_[product];
    deltas.first_row = first;
    return deltas;
  }
  // The products of a slot with A.
  void shrink_slot(int product, int64_t slot, const float* x, int64_t width) const {
    deltas_[product].for_rows(slot, slot + 1, [&](const DeltaRun& run) {
      shrink_row(deltas_[product], *run.delta, x, width, slot);
    });
  }
  int64_t plan(ExpertTiles& tiles) {
    return tiles.plan(first_slots(), call_.context.team.num_threads());
  }
  int64_t rows_of_expert(int64_t expert) const {
    return first_slots()[expert + 1] - first_slots()[expert];
  }

  void gather(int64_t item, int member) const {
    slots_of(item, [&](int64_t expert, int64_t first, int64_t slot) {
      gather_slot(expert, first, slot, scratch(member));
    });
  }
  void gather_slot(int64_t expert, int64_t first, int64_t slot,
                   const MemberScratch& scratch) const {
    const CpuWeight& weight = call_.gate_up(expert);
    const int64_t row = raw(args_.routing.rows)[slot], index = slot - first;
    if (has_deltas_) shrink_slot(0, slot, normed_row(row), call_.width);
    const RowSource source = call_.gate_up_source(expert, first);
    if (weight.takes(ActivationType::kF32)) {
      std::memcpy(const_cast<float*>(source.rows) + index * call_.width, normed_row(row),
                  static_cast<size_t>(call_.width) * sizeof(float));
    }
    const Input input(on_device(normed_row(0)));
    const LinearCall linear{weight, input, rows_of_expert(expert), nullptr};
    const InputRows records(call_.context, linear);
    if (!weight.input_order().empty()) {
      return records.quantise_row(normed_row(row), index, source, scratch);
    }
    for (const KernelRow* kernel : records.kernels()) {
      copy_records(kernel->activation, row, linear.num_rows, index, source);
    }
  }
  // What is stored of a row, among the rows of the batch, to those of an expert.
  void copy_records(ActivationType type, int64_t row, int64_t num_rows, int64_t index,
                    const RowSource& to) const {
    copy_activations(type, call_.gate_up(0).num_inputs(),
                     {input_.all().activations[is_of_codes(type)], row, call_.num_rows},
                     {to.activations[is_of_codes(type)], index, num_rows});
  }

  void run_gate_up(int64_t item, int member) const {
    const auto [expert, tile] = gate_up_tiles_.at(item);
    const int64_t first = first_slots()[expert];
    const CallDeltas deltas = deltas_of(0, first);
    const LinearCall linear{call_.gate_up(expert), args_.input, rows_of_expert(expert),
                            raw(args_.slot_activations) + first * call_.inner,
                            has_deltas_ ? &deltas : nullptr};
    compute_gated(call_.context, linear, call_.gate_up_source(expert, first), tile,
                  call_.gating(expert), scratch(member));
  }
  void quantise(int64_t item, int member) const {
    slots_of(item, [&](int64_t expert, int64_t first, int64_t slot) {
      if (has_deltas_) {
        shrink_slot(1, slot, raw(args_.slot_activations) + slot * call_.inner, call_.inner);
      }
      quantise_activations(call_, expert, first, slot, rows_of_expert(expert), scratch(member));
    });
  }
  void run_down(int64_t item, int member) const {
    const auto [expert, tile] = down_tiles_.at(item);
    const int64_t first = first_slots()[expert];
    const CallDeltas deltas = deltas_of(1, first);
    const LinearCall linear{call_.down(expert), args_.input, rows_of_expert(expert),
                            raw(args_.slot_outputs) + first * call_.num_outputs,
                            has_deltas_ ? &deltas : nullptr};
    Epilogue epilogue;
    if (args_.down_bias) epilogue.bias = args_.down_bias + expert * call_.num_outputs;
    compute_sums(linear, call_.down_source(expert, first), tile, scratch(member));
    finish_tile(call_.context, linear, tile, epilogue, scratch(member).sums);
  }

  // y in the order of the row's choices.
  void mix_row(int64_t row) const {
    const int32_t* slots = raw(args_.routing.slots) + row * call_.num_chosen;
    const float* weights = raw(args_.routing.weights) + row * call_.num_chosen;
    float* y = raw(args_.mixed) + row * call_.num_outputs;
    std::fill_n(y, call_.num_outputs, 0.0f);
    for (int64_t j = 0; j < call_.num_chosen; ++j) {
      add_weighted(weights[j], raw(args_.slot_outputs) + slots[j] * call_.num_outputs,
                   call_.num_outputs, y);
    }
    if (args_.shared) {
      add_weighted(raw(args_.shared_factors)[row], raw(args_.shared) + row * call_.num_outputs,
                   call_.num_outputs, y);
    }
    if (args_.epilogue.reduction == nullptr) finish_rows(call_, row, row + 1);
  }

  const ExpertsCall& call_;
  const bool has_deltas_;  // of adapters
  CallDeltas deltas_[2];   // by product, of all slots; once they are placed
  const ExpertsArgs& args_;
  const LinearCall linear_;
  const InputRows input_;
  ExpertTiles gate_up_tiles_, down_tiles_;
  int64_t rows_per_item_, num_slots_;
};

// Whether an adapter of the step adds to any of these experts.
bool has_expert_deltas(const ExpertsCall& call) {
  const StepAdapters& adapters = call.context.adapters;
  return !adapters.empty() &&
         (adapters.has_experts(*call.args.gate_up) || adapters.has_experts(*call.args.down));
}

}  // namespace

void run_experts(const CpuContext& context, const ExpertsArgs& args) {
  if (args.routing.num_rows == 0) return;
  const ExpertsCall call{context, args};
  const bool has_deltas = has_expert_deltas(call);
  if (call.num_rows == 1 && !has_deltas) return run_experts_row(call);
  BatchOfExperts(call, has_deltas).run();
}

}  // namespace headrace::cpu
