#include "model/mlp.h"

#include "model/mlp_kinds.h"

namespace headrace {
namespace {

// A layer that is a mixer only.
void run_none(const StepContext&, int, const RoleWeights&, const Branch&) {}

struct MlpFunction {
  MlpKind kind;
  void (*run)(const StepContext&, int layer_idx, const RoleWeights&, const Branch&);
};
constexpr MlpFunction kMlpFunctions[] = {
    {MlpKind::kDense, run_dense},     {MlpKind::kPlain, run_plain},
    {MlpKind::kExperts, run_experts}, {MlpKind::kNone, run_none},
    {MlpKind::kSparse, run_sparse},   {MlpKind::kDenseAndExperts, run_dense_and_experts}};

}  // namespace

void run_mlp(const StepContext& step, int layer_idx, const RoleWeights& weights,
             const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  for (const MlpFunction& function : kMlpFunctions) {
    if (function.kind == layer.mlp) return function.run(step, layer_idx, weights, branch);
  }
  CHECK(false, "MLP {}", static_cast<int>(layer.mlp));
}

}  // namespace headrace
