#include "model/mixers.h"

#include <algorithm>

#include "model/mixer_kinds.h"

namespace headrace {
namespace {

// Blocks from one snapshot of state to the next, besides that at the end of a prompt.
constexpr int64_t kSnapshotBlocks = 64;

struct MixerFunctions {
  MixerKind kind;
  void (*run)(const StepContext&, int layer_idx, const RoleWeights&, const Branch&);
  KeptState (*keep)(const ModelConfig&, const LayerConfig&, KvType);
};
constexpr MixerFunctions kFunctions[] = {{MixerKind::kAttention, run_attention, keep_attention},
                                         {MixerKind::kGatedDelta, run_delta, keep_delta},
                                         {MixerKind::kChannelDelta, run_channel_delta, keep_delta},
                                         {MixerKind::kLatent, run_latent, keep_latent}};

const MixerFunctions& functions_of(const LayerConfig& layer) {
  for (const MixerFunctions& functions : kFunctions) {
    if (functions.kind == layer.mixer) return functions;
  }
  CHECK(false, "mixer {}", static_cast<int>(layer.mixer));
}

CacheGroup& group_for(const KeptState& kept, std::vector<CacheGroup>* groups) {
  const auto found = std::find_if(groups->begin(), groups->end(), [&](const CacheGroup& group) {
    return group.policy == kept.policy && group.window == kept.window;
  });
  if (found != groups->end()) return *found;
  const int64_t snapshots = kept.policy == CachePolicy::kState ? kSnapshotBlocks : 0;
  return groups->emplace_back(CacheGroup{{}, kept.policy, kept.window, snapshots});
}

}  // namespace

void run_mixer(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch) {
  const LayerConfig& layer = step.config.layers[static_cast<size_t>(layer_idx)];
  functions_of(layer).run(step, layer_idx, weights, branch);
}

std::vector<CacheGroup> cache_groups_of(const ModelConfig& config, KvType type) {
  std::vector<CacheGroup> groups;
  for (int i = 0; i < config.num_layers(); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    KeptState kept = functions_of(layer).keep(config, layer, type);
    for (std::vector<KvPlane>& planes : kept.pieces) {
      group_for(kept, &groups).layers.push_back({i, std::move(planes)});
    }
  }
  return groups;
}

}  // namespace headrace
