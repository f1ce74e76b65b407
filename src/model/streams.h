// Streams beside the residual one (ModelConfig::num_streams, AltUp): each layer predicts all of
// them, computes the first, and corrects all by what came out. Beside attention stands a branch of
// low rank (LAuReL).
//
// They lie in Workspace::streams, [num_streams, M, hidden_size]: the first is Workspace::hidden, so
// its place is that of a layer's result, `active`.
#pragma once

#include "model/step.h"
#include "model/weights.h"

namespace headrace {

DevicePtr<float> active_stream(const StepContext& step);

// From the embedded tokens all streams.
void open_streams(const StepContext& step, const RoleWeights& network);
// From all streams the residual one.
void close_streams(const StepContext& step, const RoleWeights& network);

void predict_streams(const StepContext& step, const RoleWeights& layer);
// active = x + n + norm(low rank of n), n = norm(x) of the residual stream x.
void run_low_rank(const StepContext& step, const RoleWeights& layer, const Norm& norm);
// All streams by what the layer made of the first; Workspace::normed is that one, scaled.
void correct_streams(const StepContext& step, const RoleWeights& layer);
// Adds `active` to all streams but the residual one.
void spread_active(const StepContext& step);

}  // namespace headrace
