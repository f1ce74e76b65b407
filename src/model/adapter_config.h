// AdapterConfig: what adapter_config.json says of an adapter (PEFT's format, type LORA).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headrace {

inline constexpr int64_t kMaxAdapterRank = 256;

struct AdapterConfig {
  std::string base_model;  // as the file names it, maybe empty
  int64_t rank = 8;
  double alpha = 8;
  bool rank_stabilised = false;  // scale = alpha / sqrt(rank) instead of alpha / rank
  bool has_magnitudes = false;   // DoRA
  bool ties_embeddings = false;  // what is done to a tied embedding is done to the head
  std::vector<std::string> saved_modules;
  // Patterns of module names with another rank or alpha, in the file's order.
  std::vector<std::pair<std::string, int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;

  // Of a module, by its whole name in the base model. kInvalidArgument names a pattern that cannot
  // be matched.
  Result<int64_t> rank_of(std::string_view module) const;
  Result<float> scale_of(std::string_view module, int64_t module_rank) const;
};

// kCorrupt, kInvalidArgument or kUnsupported name the key, what was found and what is needed.
Result<AdapterConfig> read_adapter_config(std::string_view text);

}  // namespace headrace
