// Decoder: the network itself, as the papers write it. Block forms are data
// (model/config/families.h):
//
//   pre, post, sandwich:  x += N2(A(N1 x));  x += N4(M(N3 x))     absent norms are the identity
//   parallel:             y = x + A(N1 x);  x = y + M(N2 x)       N2 is N1 where there is no other
//   then, where a layer has an input of its own or a factor (layer_inputs.h):
//                         x += N5(I(x));  x *= s
//
// Allocates nothing in forward() without a tap, and looks at nothing that it computes: it may
// return before the step has been computed (Backend::synchronize). Owner: Model. Engine thread.
#pragma once

#include <vector>

#include "model/batch.h"
#include "model/kv_store.h"
#include "model/rope.h"
#include "model/step.h"
#include "model/weights.h"

namespace headrace {

class Decoder {
 public:
  Decoder(const ModelConfig& config, const Weights& weights, Backend& backend,
          Workspace& workspace);

  void forward(const Batch& batch, KvStore& kv, const StepOutput& output, const HiddenTap& tap);
  int64_t rope_epoch(int64_t num_tokens) const;

 private:
  void prepare(const Batch& batch);
  void prepare_span(const Span& span);
  void embed(const Batch& batch);
  void join_states(const Batch& batch);
  void add_positions(size_t num_rows);
  void fill_rope(std::span<const Span> spans, size_t rope_idx);
  void fill_query_scales(size_t num_rows);
  void run_layer(const StepContext& step, int layer_idx);
  void run_stream_layer(const StepContext& step, int layer_idx);
  struct Rows {
    DevicePtr<float> values;  // [count, hidden_size]
    int64_t count;
  };
  void norm_rows(const Norm& norm, DevicePtr<const float> x, const Rows& out);
  Norm norm_of(const RoleWeights& weights, Role role) const;
  Branch branch_of(const RoleWeights& weights, Role norm, Role post_norm) const;
  Branch bare_branch(const RoleWeights& weights, Role post_norm) const;
  void show(const HiddenTap& tap, int layer, DevicePtr<const float> rows, int64_t num_rows);
  void show_final_norm(const StepContext& step, const HiddenTap& tap);
  void compute_hidden(const StepContext& step, const Batch& batch, const StepOutput& output);
  void compute_logits(const StepContext& step, const Batch& batch, const StepOutput& output);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  Workspace& workspace_;
  std::vector<RopeTable> ropes_;
  std::vector<float> shown_;  // rows for a tap
};

}  // namespace headrace
