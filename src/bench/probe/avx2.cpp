// Probes of 256-bit vectors. Compiled for AVX2; the rows say what else they need.

#include <immintrin.h>

#include "bench/probe/probe.h"

namespace headrace::cpu {
namespace {

// Enough independent sums to cover the latency of two instructions a cycle.
constexpr int kSums = 12;

void fma(int64_t iterations) {
  __m256 sums[kSums];
  for (auto& sum : sums) sum = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(1.0009765625f), y = _mm256_set1_ps(0.9990234375f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) {
      __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(sums[j]) : "x"(x), "x"(y));
    }
  }
}

void vnni(int64_t iterations) {
  __m256i sums[kSums];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi32(0x01020304), y = _mm256_set1_epi32(0x7f81017f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kSums; ++j) {
      __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums[j]) : "x"(x), "x"(y));
    }
  }
}

// Without a dot instruction: words multiplied in pairs, and added.
void words(int64_t iterations) {
  constexpr int kWordSums = 8;  // each with a temporary of its own
  __m256i sums[kWordSums], products[kWordSums / 2];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi32(0x01020304), y = _mm256_set1_epi32(0x7f81017f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kWordSums; ++j) {
      __asm__ volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
                       : "+x"(sums[j]), "=&x"(products[j / 2])
                       : "x"(x), "x"(y));
    }
  }
}

// The same of bytes: pairs to 16 bits, eight of those added there (as many as hold sums of codes of
// 4 bits), pairs of these to 32.
void pairs(int64_t iterations) {
  constexpr int kPairSums = 4;  // each with temporaries of its own
  __m256i sums[kPairSums], halves[kPairSums], products[kPairSums];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi32(0x01020304), y = _mm256_set1_epi32(0x7f81017f);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto& half : halves) half = _mm256_maddubs_epi16(x, y);
#pragma GCC unroll 7
    for (int k = 1; k < 8; ++k) {
#pragma GCC unroll 4
      for (int j = 0; j < kPairSums; ++j) {
        __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                         : "+x"(halves[j]), "=&x"(products[j])
                         : "x"(x), "x"(y));
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kPairSums; ++j) {
      __asm__ volatile("vpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0"
                       : "+x"(sums[j]), "+x"(halves[j])
                       : "x"(ones));
    }
  }
}

// kStreams runs of the range side by side: more misses in flight than one run has.
template <int kStreams>
uint64_t read(const void* memory, size_t num_bytes, int64_t passes) {
  const size_t words = num_bytes / sizeof(__m256i) / kStreams;  // of one run
  __m256i sums[2 * kStreams];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t pass = 0; pass < passes; ++pass) {
    const auto* first = static_cast<const __m256i*>(memory);
    __asm__ volatile("" : "+r"(first)::"memory");  // each pass loads again
    for (size_t i = 0; i < words; i += 2) {
#pragma GCC unroll 8
      for (int j = 0; j < kStreams; ++j) {
        const __m256i* place = first + static_cast<size_t>(j) * words + i;
        sums[2 * j] = _mm256_add_epi64(sums[2 * j], _mm256_load_si256(place));
        sums[2 * j + 1] = _mm256_add_epi64(sums[2 * j + 1], _mm256_load_si256(place + 1));
      }
    }
  }
  for (int j = 1; j < 2 * kStreams; ++j) sums[0] = _mm256_add_epi64(sums[0], sums[j]);
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums[0]);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

constexpr double kLanes = 8, kMultiplyAdd = 2;

constexpr PeakRow kPeaks[] = {
    {"avx2 fma", PeakKind::kF32, kIsaAvx2 | kIsaFma, kSums* kLanes* kMultiplyAdd, fma},
    {"avx2 vpmaddwd", PeakKind::kInt16, kIsaAvx2, 8 * kLanes * 2 * kMultiplyAdd, words},
    {"avx2 vpmaddubsw", PeakKind::kInt8, kIsaAvx2, 4 * 8 * kLanes * 4 * kMultiplyAdd, pairs},
    {"avx-vnni vpdpbusd", PeakKind::kInt8, kIsaAvx2 | kIsaAvxVnni, kSums* kLanes * 4 * kMultiplyAdd,
     vnni},
};

constexpr ReadRow kReads[] = {
    {"avx2, 1 run", kIsaAvx2, read<1>},
    {"avx2, 4 runs", kIsaAvx2, read<4>},
};

}  // namespace

const ProbeUnit kAvx2Probes = {kPeaks, 4, kReads, 2};

}  // namespace headrace::cpu
