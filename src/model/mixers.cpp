#include "model/mixers.h"

#include <algorithm>

#include "model/mixer_kinds.h"

namespace headrace {
namespace {

// Blocks from one snapshot of state to the next, besides that at the end of a prompt: so many that
// the snapshots of a prompt take about the memory of its positions, within these bounds.
constexpr int64_t kLeastSnapshotBlocks = 32;
constexpr int64_t kMostSnapshotBlocks = 512;

struct MixerFunctions {
  MixerKind kind;
  void (*run)(const StepContext&, int layer_idx, const RoleWeights&, const Branch&);
  KeptState (*keep)(const ModelConfig&, const LayerConfig&, KvType);
};
constexpr MixerFunctions kFunctions[] = {{MixerKind::kAttention, run_attention, keep_attention},
                                         {MixerKind::kGatedDelta, run_delta, keep_delta},
                                         {MixerKind::kChannelDelta, run_channel_delta, keep_delta},
                                         {MixerKind::kLatent, run_latent, keep_latent},
                                         {MixerKind::kShortConv, run_short_conv, keep_short_conv},
                                         {MixerKind::kScan, run_scan, keep_scan}};

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
  const int64_t snapshots = kept.policy == CachePolicy::kState ? kMostSnapshotBlocks : 0;
  return groups->emplace_back(CacheGroup{{}, kept.policy, kept.window, snapshots});
}

// Bytes of a group in a block of positions, or of its whole state; nearly, for types with scales.
int64_t bytes_of(const CacheGroup& group) {
  constexpr int64_t kTypeBytes[kNumKvTypes] = {4, 2, 2, 1, 1};
  const int64_t positions = group.policy == CachePolicy::kState ? 1 : kBlockTokens;
  int64_t bytes = 0;
  for (const CacheLayer& layer : group.layers) {
    for (const KvPlane& plane : layer.planes) {
      bytes +=
          positions * plane.num_heads * plane.width * kTypeBytes[static_cast<size_t>(plane.type)];
    }
  }
  return bytes;
}

void choose_snapshots(std::vector<CacheGroup>* groups) {
  int64_t of_positions = 0;
  for (const CacheGroup& group : *groups) {
    if (group.policy == CachePolicy::kFull) of_positions += bytes_of(group);
  }
  for (CacheGroup& group : *groups) {
    if (group.policy != CachePolicy::kState || of_positions == 0) continue;
    group.snapshot_blocks =
        std::clamp(bytes_of(group) / of_positions, kLeastSnapshotBlocks, kMostSnapshotBlocks);
  }
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
  choose_snapshots(&groups);
  return groups;
}

}  // namespace headrace
