// EvictedNames: which prefixes were cached until lately. Names only, no bytes.
//
// Holds about twice as many names as there are blocks; in each set of eight the one put in first
// goes first. Names are keyed digests, so sets fill evenly and nobody can aim at one. O(1), nothing
// allocates after construction. Engine thread only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "engine/keyed_digest.h"

namespace headrace {

class EvictedNames {
 public:
  explicit EvictedNames(int64_t num_blocks)
      : names_(std::bit_ceil(static_cast<size_t>(num_blocks) * 2 + kWays)),
        oldest_(names_.size() / kWays) {}

  void add(const Digest& name) {
    if (contains(name)) return;
    const size_t set = set_of(name);
    names_[set * kWays + oldest_[set]] = name.first;
    oldest_[set] = static_cast<uint8_t>((oldest_[set] + 1) % kWays);
  }
  bool contains(const Digest& name) const {
    const auto first = names_.begin() + static_cast<ptrdiff_t>(set_of(name) * kWays);
    return std::find(first, first + kWays, name.first) != first + kWays;
  }

 private:
  static constexpr ptrdiff_t kWays = 8;

  size_t set_of(const Digest& name) const {
    return static_cast<size_t>(name.second) & (oldest_.size() - 1);
  }

  std::vector<uint64_t> names_;  // 0: none, which is nobody's name but by chance
  std::vector<uint8_t> oldest_;  // by set
};

}  // namespace headrace
