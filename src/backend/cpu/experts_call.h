// What the two schedules of a mixture of experts share: experts.cpp for a batch, experts_row.cpp
// for one row.
//
// A slot is a row at one of its experts; slots are ordered by expert. What an expert multiplies
// lies together: its slots' rows as floats, or their records slice by slice, as a linear layer of
// that many rows has them.
#pragma once

#include "backend/cpu/matmul.h"
#include "backend/cpu/router.h"

namespace headrace::cpu {

struct ExpertsCall {
  const CpuContext& context;
  const ExpertsArgs& args;
  int64_t num_rows = args.routing.num_rows;
  int64_t num_chosen = args.routing.num_chosen;
  int64_t width = args.gate_up->num_inputs();      // K
  int64_t inner = args.down->num_inputs();         // I
  int64_t num_outputs = args.down->num_outputs();  // N

  const CpuWeight& gate_up(int64_t expert) const {
    return static_cast<const CpuWeight&>(args.gate_up->expert(expert));
  }
  const CpuWeight& down(int64_t expert) const {
    return static_cast<const CpuWeight&>(args.down->expert(expert));
  }
  Gating gating(int64_t expert) const;
  // Where `expert`'s slots, from `first_slot` on, have what its weight multiplies. Rows of gate and
  // up may be wanted in two forms, those of down in one; what down reads takes the place of what
  // gate and up have read.
  RowSource gate_up_source(int64_t expert, int64_t first_slot) const;
  RowSource down_source(int64_t expert, int64_t first_slot) const;
};

// Quantises the activations of a slot for its expert's down; the expert has num_rows slots.
void quantise_activations(const ExpertsCall& call, int64_t expert, int64_t first_slot, int64_t slot,
                          int64_t num_rows, const MemberScratch& scratch);
// Whether any expert's down wants that.
bool quantises_activations(const ExpertsCall& call);

// Room of a member that routes.
RouterScratch router_scratch(const MemberScratch& scratch);
// sigmoid(shared_gate . n), n a normed row; 1 without a gate.
float shared_factor(const ExpertsArgs& args, const float* n);
// y[i] += weight * x[i]
void add_weighted(float weight, const float* x, int64_t count, float* y);
// out = residual + scale * post_norm(y), rows `first` to `end` of args.mixed.
void finish_rows(const ExpertsCall& call, int64_t first, int64_t end);
// Adds the rows that experts have to args.counts.
void count_rows(const ExpertsArgs& args);

// One row, whose experts' weights are read in place.
void run_experts_row(const ExpertsCall& call);

}  // namespace headrace::cpu
