// Probes of 512-bit vectors. Compiled for AVX-512F; the rows say what else they need.

#include <immintrin.h>

#include "bench/probe/probe.h"

namespace headrace::cpu {
namespace {

constexpr int kSums = 16;

enum class Instruction { kFma, kBf16, kInt8, kInt16 };

template <Instruction kInstruction>
inline void step(__m512i& sum, const __m512i& x, const __m512i& y) {
  if constexpr (kInstruction == Instruction::kFma) {
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  } else if constexpr (kInstruction == Instruction::kBf16) {
    __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  } else if constexpr (kInstruction == Instruction::kInt8) {
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  } else {
    __asm__ volatile("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  }
}

// 0x3f803f81 is near 1 as float32 and as a pair of bf16, and as good as any pattern for integers.
template <Instruction kInstruction>
void peak(int64_t iterations) {
  __m512i sums[kSums];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi32(0x3f803f81), y = _mm512_set1_epi32(0x3f7f3f7e);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kSums; ++j) step<kInstruction>(sums[j], x, y);
  }
}

// kStreams runs of the range side by side: more misses in flight than one run has.
template <int kStreams>
uint64_t read(const void* memory, size_t num_bytes, int64_t passes) {
  const size_t words = num_bytes / sizeof(__m512i) / kStreams;  // of one run
  __m512i sums[2 * kStreams];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t pass = 0; pass < passes; ++pass) {
    const auto* first = static_cast<const __m512i*>(memory);
    __asm__ volatile("" : "+r"(first)::"memory");  // each pass loads again
    for (size_t i = 0; i < words; i += 2) {
#pragma GCC unroll 8
      for (int j = 0; j < kStreams; ++j) {
        const __m512i* place = first + static_cast<size_t>(j) * words + i;
        sums[2 * j] = _mm512_add_epi64(sums[2 * j], _mm512_load_si512(place));
        sums[2 * j + 1] = _mm512_add_epi64(sums[2 * j + 1], _mm512_load_si512(place + 1));
      }
    }
  }
  for (int j = 1; j < 2 * kStreams; ++j) sums[0] = _mm512_add_epi64(sums[0], sums[j]);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sums[0]);
  uint64_t total = 0;
  for (const uint64_t lane : lanes) total += lane;
  return total;
}

constexpr double kLanes = 16, kMultiplyAdd = 2;
constexpr double kStep = kSums * kLanes * kMultiplyAdd;

constexpr PeakRow kPeaks[] = {
    {"avx512 fma", PeakKind::kF32, kIsaAvx512F, kStep, peak<Instruction::kFma>},
    {"avx512 vdpbf16ps", PeakKind::kBF16, kIsaAvx512F | kIsaAvx512Bf16, 2 * kStep,
     peak<Instruction::kBf16>},
    {"avx512 vpdpwssd", PeakKind::kInt16, kIsaAvx512F | kIsaAvx512Vnni, 2 * kStep,
     peak<Instruction::kInt16>},
    {"avx512 vpdpbusd", PeakKind::kInt8, kIsaAvx512F | kIsaAvx512Vnni, 4 * kStep,
     peak<Instruction::kInt8>},
};

constexpr ReadRow kReads[] = {
    {"avx512, 1 run", kIsaAvx512F, read<1>},
    {"avx512, 4 runs", kIsaAvx512F, read<4>},
};

}  // namespace

const ProbeUnit kAvx512Probes = {kPeaks, 4, kReads, 2};

}  // namespace headrace::cpu
