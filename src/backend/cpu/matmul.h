// The loop schedule of linear layers: who computes which panels of which rows, in which order, and
// what comes before and after in the same join.
//
// An op is up to three phases of the team: rows are normed and quantised, tiles (rows x panels) are
// multiplied and finished, rows are finished (norm of the branch; rope and KV append). Tiles are
// cut so that there are several per member and none takes long. An op of one row has no first
// phase: each member makes the input for itself and takes panels of its own share first
// (panel_shares.h). None of this reaches a result bit (kernels.h).
#pragma once

#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "backend/cpu/linear_tiles.h"

namespace headrace::cpu {

GateForm gate_form(Activation activation);

// From sums to outputs of the call.
void finish_tile(const CpuContext& context, const LinearCall& call, const Tile2D& tile,
                 const Epilogue& epilogue, const float* sums);

struct Gating {
  GateForm form;
  const float* bias;  // of the whole weight, or null
};
// The tile of the gate's panels and of the same panels of up, to outputs of the call.
void compute_gated(const CpuContext& context, const LinearCall& call, const RowSource& source,
                   const Tile2D& gate, const Gating& gating, const MemberScratch& scratch);

void run_linear(const CpuContext& context, const LinearCall& call, const Epilogue& epilogue);
void run_gated_linear(const CpuContext& context, const LinearCall& call, const GateForm& form,
                      const float* bias);
void run_activated_linear(const CpuContext& context, const LinearCall& call,
                          const ActivatedArgs& activated);
// call.out is the projection; args.qkv equals it.
void run_qkv_linear(const CpuContext& context, const LinearCall& call, DevicePtr<const float> bias,
                    const QkvArgs& args);
// call.out and call.num_rows are those of args.
void run_head(const CpuContext& context, const LinearCall& call, const HeadArgs& args);

}  // namespace headrace::cpu
