#include "model/cache_groups.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kPlannedTokens = 8192;  // the context whose bytes are made few
constexpr size_t kNearlyAsGood = 16;      // one part in so many more bytes, for fewer columns

using LayerBytes = std::vector<std::vector<size_t>>;  // [group][layer of it]

size_t layer_bytes(const CacheLayer& layer, CachePolicy policy, const Backend& backend) {
  size_t bytes = 0;
  for (const KvPlane& plane : layer.planes) bytes += cache_plane_bytes(plane, policy, backend);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A try: the column of each layer within its group, filled in order.
struct Cut {
  std::vector<std::vector<int>> columns;  // [group][layer of it]
  int num_columns = 0;
  size_t block_bytes = 0;
  size_t total_bytes = 0;  // of a planned context
};

CacheRule rule_of(const CacheGroup& group, int num_columns) {
  return {group.policy, group.window, group.snapshot_blocks, num_columns};
}

// Columns of at most target_bytes, or of one layer.
Cut cut_for(const std::vector<CacheGroup>& groups, const LayerBytes& bytes, size_t target_bytes) {
  Cut cut;
  int64_t num_blocks = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<int>& columns = cut.columns.emplace_back();
    size_t filled = 0;
    for (const size_t layer : bytes[g]) {
      const bool fits = !columns.empty() && filled + layer <= target_bytes;
      columns.push_back(columns.empty() ? 0 : columns.back() + (fits ? 0 : 1));
      filled = fits ? filled + layer : layer;
      cut.block_bytes = std::max(cut.block_bytes, filled);
    }
    const int num_columns = columns.back() + 1;
    cut.num_columns += num_columns;
    num_blocks += most_blocks({rule_of(groups[g], num_columns)}, kPlannedTokens, 1);
  }
  cut.total_bytes = static_cast<size_t>(num_blocks) * cut.block_bytes;
  return cut;
}

Cut best_cut(const std::vector<CacheGroup>& groups, const LayerBytes& bytes) {
  // Without their columns: a state of many pieces has as many cuts.
  std::vector<std::pair<size_t, Cut>> cuts;
  size_t least = SIZE_MAX;
  for (const std::vector<size_t>& layers : bytes) {
    size_t target = 0;
    for (const size_t layer : layers) {
      target += layer;
      Cut& cut = cuts.emplace_back(target, cut_for(groups, bytes, target)).second;
      cut.columns = {};
      least = std::min(least, cut.total_bytes);
    }
  }
  std::erase_if(cuts, [least](const auto& cut) {
    return cut.second.total_bytes - least > least / kNearlyAsGood;
  });
  const auto cost = [](const auto& cut) {
    return std::pair(cut.second.num_columns, cut.second.total_bytes);
  };
  const auto best = std::min_element(
      cuts.begin(), cuts.end(), [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  return cut_for(groups, bytes, best->first);
}

void check_group(const CacheGroup& group) {
  CHECK(!group.layers.empty(), "a cache group without layers");
  CHECK((group.policy == CachePolicy::kWindow) == (group.window > 0), "window {}", group.window);
  CHECK((group.policy == CachePolicy::kState) == (group.snapshot_blocks > 0),
        "a snapshot every {} blocks", group.snapshot_blocks);
}

// Gives the layers of a group their places in columns that begin at first_column.
void place_layers(const CacheGroup& group, const std::vector<int>& columns,
                  const std::vector<size_t>& bytes, int first_column,
                  std::vector<CachePlace>* places) {
  size_t offset = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) offset = columns[i] == columns[i - 1] ? offset + bytes[i - 1] : 0;
    const auto layer_idx = static_cast<size_t>(group.layers[i].layer_idx);
    if (layer_idx >= places->size()) places->resize(layer_idx + 1);
    CachePlace& place = (*places)[layer_idx];
    const bool continues = i > 0 && group.layers[i - 1].layer_idx == group.layers[i].layer_idx &&
                           group.policy == CachePolicy::kState;
    CHECK(place.pieces.empty() || continues, "layer {} is in two cache groups", layer_idx);
    place.policy = group.policy;
    place.pieces.push_back({first_column + columns[i], offset, group.layers[i].planes});
  }
}

}  // namespace

size_t cache_plane_bytes(const KvPlane& plane, CachePolicy policy, const Backend& backend) {
  if (policy != CachePolicy::kState) return backend.kv_plane_bytes(plane);
  CHECK(plane.type == KvType::kF32, "state plane {} is not float32", plane.name);
  return static_cast<size_t>(plane.num_heads) * static_cast<size_t>(plane.width) * sizeof(float);
}

CacheLayout plan_cache(const std::vector<CacheGroup>& groups, const Backend& backend) {
  CHECK(!groups.empty(), "a model without cache groups");
  LayerBytes bytes;
  for (const CacheGroup& group : groups) {
    check_group(group);
    std::vector<size_t>& of_group = bytes.emplace_back();
    for (const CacheLayer& layer : group.layers) {
      of_group.push_back(layer_bytes(layer, group.policy, backend));
    }
  }
  const Cut cut = best_cut(groups, bytes);
  CacheLayout layout;
  layout.block_bytes = cut.block_bytes;
  for (size_t g = 0; g < groups.size(); ++g) {
    place_layers(groups[g], cut.columns[g], bytes[g], layout.num_columns, &layout.places);
    layout.rules.push_back(rule_of(groups[g], cut.columns[g].back() + 1));
    layout.num_columns += layout.rules.back().num_columns;
  }
  return layout;
}

size_t CacheLayout::bytes_for(int64_t num_tokens, int64_t max_chunk) const {
  return static_cast<size_t>(most_blocks(rules, num_tokens, max_chunk)) * block_bytes;
}

int64_t most_blocks(const std::vector<CacheRule>& rules, int64_t num_tokens, int64_t max_chunk) {
  int64_t total = 0;
  for (const CacheRule& rule : rules) {
    int64_t held = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    if (rule.policy == CachePolicy::kWindow) {
      // Blocks that window - 1 positions and a chunk after them touch, wherever they begin.
      held = std::min(held, (rule.window - 1 + max_chunk + kBlockTokens - 2) / kBlockTokens + 1);
    } else if (rule.policy == CachePolicy::kState) {
      held = 2;  // where it was and where it will be
    }
    total += held * rule.num_columns;
  }
  return total;
}

}  // namespace headrace
