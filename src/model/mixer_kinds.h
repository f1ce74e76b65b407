// The functions of each kind of mixer: how it runs, and what it keeps of a sequence. For
// mixers.cpp, whose table names them, and the files of the kinds.
#pragma once

#include <vector>

#include "model/cache_groups.h"
#include "model/step.h"
#include "model/weights.h"

namespace headrace {

// What a layer keeps of a sequence. State may be cut into pieces (model/cache_groups.h); no pieces:
// nothing is kept.
struct KeptState {
  CachePolicy policy = CachePolicy::kFull;
  int64_t window = 0;
  std::vector<std::vector<KvPlane>> pieces;
};

void run_attention(const StepContext& step, int layer_idx, const RoleWeights& weights,
                   const Branch& branch);
KeptState keep_attention(const ModelConfig& config, const LayerConfig& layer, KvType type);

void run_delta(const StepContext& step, int layer_idx, const RoleWeights& weights,
               const Branch& branch);
void run_channel_delta(const StepContext& step, int layer_idx, const RoleWeights& weights,
                       const Branch& branch);
KeptState keep_delta(const ModelConfig& config, const LayerConfig& layer, KvType type);
void run_latent(const StepContext& step, int layer_idx, const RoleWeights& weights,
                const Branch& branch);
KeptState keep_latent(const ModelConfig& config, const LayerConfig& layer, KvType type);

void run_short_conv(const StepContext& step, int layer_idx, const RoleWeights& weights,
                    const Branch& branch);
KeptState keep_short_conv(const ModelConfig& config, const LayerConfig& layer, KvType type);

void run_scan(const StepContext& step, int layer_idx, const RoleWeights& weights,
              const Branch& branch);
KeptState keep_scan(const ModelConfig& config, const LayerConfig& layer, KvType type);

}  // namespace headrace
