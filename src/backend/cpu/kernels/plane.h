// The plane rule of kernels.h: codes of one lane as bits of its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

inline constexpr size_t kWordStride = 4 * kPanel;  // from one word of a lane to its next

// Bits [shift, shift + kBits) of each of `count` codes. `at` is the lane's first word. Codes are
// zero up to the end of the last word.
template <int kBits>
void put_plane(const uint8_t* codes, int count, int shift, uint8_t* at) {
  constexpr uint32_t kMask = 0x01010101u * ((1u << kBits) - 1u);
  constexpr int kPerWord = 32 / kBits;
  for (int first = 0; first < count; first += kPerWord, at += kWordStride) {
    uint32_t word = 0;
    for (int group = 0; group < 8 / kBits; ++group) {
      uint32_t four;
      std::memcpy(&four, codes + first + 4 * group, sizeof(four));
      word |= ((four >> shift) & kMask) << (kBits * group);
    }
    std::memcpy(at, &word, sizeof(word));
  }
}

using PutPlane = void (*)(const uint8_t* codes, int count, int shift, uint8_t* at);
inline constexpr PutPlane kPutPlane[9] = {nullptr, &put_plane<1>, &put_plane<2>,
                                          nullptr, &put_plane<4>, nullptr,
                                          nullptr, nullptr,       &put_plane<8>};

}  // namespace headrace::cpu
