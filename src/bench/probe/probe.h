// Probes: loops that run at a limit of the processor, so that other figures can be a share of it.
//
// A unit (avx2.cpp, avx512.cpp, amx.cpp) is compiled with its own flags, includes only this header,
// the kernels' header of plain data and intrinsics, keeps everything in an anonymous namespace and
// exports one symbol: its ProbeUnit. A peak row repeats one arithmetic instruction on registers
// (the instruction is written in assembly, so that no compiler folds the loop); a read row loads
// every 64 bytes of a range, several times over; a sequence row repeats instructions as kernels put
// them together, to tell what a kernel of them cannot beat. Thread-safe; the caller checks the ISA
// bits (detect_isa also asks the system for the use of tiles).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {

// The arithmetic of a peak row, as kernels speak of it. One row per kind and instruction width.
enum class PeakKind : uint8_t {
  kF32,      // float32 multiply-add
  kBF16,     // bf16 products, float32 sums
  kInt16,    // int16 products, int32 sums
  kInt8,     // int8 products, int32 sums
  kInt8K32,  // the same in tiles that are half filled, as blocks of 32 inputs leave them
};

struct PeakRow {
  const char* name;  // "avx512 vpdpbusd"
  PeakKind kind;
  uint32_t isa;                          // IsaBits, all needed
  double operations;                     // of one iteration: a multiply and an add are two
  void (*function)(int64_t iterations);  // about 1e-8 s each
};

// Reads [memory, memory + num_bytes) `passes` times; returns a sum of all words, so that every load
// is needed. memory is 64-byte aligned, num_bytes a multiple of 4096.
struct ReadRow {
  const char* name;
  uint32_t isa;
  uint64_t (*function)(const void* memory, size_t num_bytes, int64_t passes);
};

enum class SequenceItem : uint8_t { kProduct, kLoad };

// memory: kSequenceBytes of this thread's own, 64-byte aligned, that hold finite numbers as bf16
// and float32 too. A sequence keeps sums in it and reads them again.
struct SequenceRow {
  const char* name;  // "amx 2 x 2 tdpbssd, operands in L1"
  uint32_t isa;
  SequenceItem item;  // what num_items counts
  int num_items;      // of one iteration
  void (*function)(void* memory, int64_t iterations);
};

inline constexpr size_t kSequenceBytes = size_t{576} << 10;

struct ProbeUnit {
  const PeakRow* peaks;
  int num_peaks;
  const ReadRow* reads = nullptr;
  int num_reads = 0;
  const SequenceRow* sequences = nullptr;
  int num_sequences = 0;
};

extern const ProbeUnit kAvx2Probes;
extern const ProbeUnit kAvx512Probes;
extern const ProbeUnit kAmxProbes;

}  // namespace headrace::cpu
