// Cache groups of real models, by the numbers of their configurations.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/cache_groups.h"

namespace headrace::testing {

inline std::unique_ptr<Backend> reference_backend() {
  return create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
}

inline std::vector<KvPlane> keys_and_values(KvType type, int num_heads, int width) {
  return {{"keys", type, num_heads, width}, {"values", type, num_heads, width}};
}

// num_layers layers of equal shape; every period-th sees everything, the others a window.
inline std::vector<CacheGroup> alternating(int num_layers, int period, int64_t window,
                                           const std::vector<KvPlane>& planes) {
  std::vector<CacheGroup> groups(2);
  groups[0].policy = CachePolicy::kWindow;
  groups[0].window = window;
  for (int i = 0; i < num_layers; ++i) {
    groups[(i + 1) % period == 0 ? 1 : 0].layers.push_back({i, planes});
  }
  return groups;
}

inline std::vector<CacheGroup> gemma3_270m(KvType type) {
  return alternating(18, 6, 512, keys_and_values(type, 1, 256));
}

}  // namespace headrace::testing
