// Philox 4x32 with 10 rounds: a counter-based random generator.
//
// A pure function of (key, counter): the draw for a position does not depend on what was drawn
// before, on the batch or on restarts. Source: Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011); constants from that paper.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1), 53 bits, for the token at this position of one of the answers to a request
// with this seed; draws of other kinds for the same token have streams of their own.
inline double uniform_at(uint64_t seed, uint32_t choice_idx, uint64_t position,
                         uint32_t stream = 0) {
  const std::array<uint32_t, 4> bits = philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice_idx, stream},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>(((uint64_t{bits[0]} << 32) | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace headrace
