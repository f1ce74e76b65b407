#include "backend/cpu/kernels/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/kernels/kernels.h"

namespace headrace::cpu {
namespace {

struct IsaName {
  uint32_t bit;
  const char* name;
};
constexpr IsaName kIsaNames[] = {
    {kIsaAvx2, "avx2"},
    {kIsaFma, "fma"},
    {kIsaF16c, "f16c"},
    {kIsaAvx512F, "avx512f"},
    {kIsaAvx512BW, "avx512bw"},
    {kIsaAvx512DQ, "avx512dq"},
    {kIsaAvx512VL, "avx512vl"},
    {kIsaAvx512Vnni, "avx512_vnni"},
    {kIsaAvx512Bf16, "avx512_bf16"},
    {kIsaAvxVnni, "avx_vnni"},
    {kIsaAmxTile, "amx_tile"},
    {kIsaAmxInt8, "amx_int8"},
    {kIsaAmxBf16, "amx_bf16"},
    {kIsaAvx512Fp16, "avx512_fp16"},
};

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

uint64_t read_xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// The bit if the condition register has `position` set.
uint32_t when(unsigned value, int position, uint32_t bit) {
  return ((value >> position) & 1u) != 0 ? bit : 0u;
}

// Permission to use the tile registers. Fails on systems that do not know the request, where a
// sandbox forbids it, and where an alternative signal stack is too small for the larger state.
bool request_tiles_of_system() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // number of the state component
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

uint32_t isa_of(const CpuidWords& words, bool (*request_tiles)()) {
  const bool avx = (words.saved_state & 0x6u) == 0x6u;
  const bool avx512 = avx && (words.saved_state & 0xE0u) == 0xE0u;
  const bool tiles = (words.saved_state & 0x60000u) == 0x60000u;
  uint32_t bits = 0;
  if (avx) {
    bits |= when(words.leaf_7_ebx, 5, kIsaAvx2) | when(words.leaf_1_ecx, 12, kIsaFma) |
            when(words.leaf_1_ecx, 29, kIsaF16c) | when(words.leaf_7_1_eax, 4, kIsaAvxVnni);
  }
  if (avx512) {
    bits |= when(words.leaf_7_ebx, 16, kIsaAvx512F) | when(words.leaf_7_ebx, 30, kIsaAvx512BW) |
            when(words.leaf_7_ebx, 17, kIsaAvx512DQ) | when(words.leaf_7_ebx, 31, kIsaAvx512VL) |
            when(words.leaf_7_ecx, 11, kIsaAvx512Vnni) |
            when(words.leaf_7_1_eax, 5, kIsaAvx512Bf16) |
            when(words.leaf_7_edx, 23, kIsaAvx512Fp16);
  }
  if (tiles && when(words.leaf_7_edx, 24, kIsaAmxTile) != 0 && request_tiles()) {
    bits |= kIsaAmxTile | when(words.leaf_7_edx, 25, kIsaAmxInt8) |
            when(words.leaf_7_edx, 22, kIsaAmxBf16);
  }
  return bits;
}

uint32_t detect_isa() {
  const Registers basic = cpuid(1, 0);
  if (when(basic.ecx, 27, 1) == 0) return 0;  // the system does not save extended state
  const Registers extended = cpuid(7, 0);
  return isa_of({basic.ecx, extended.ebx, extended.ecx, extended.edx, cpuid(7, 1).eax, read_xcr0()},
                &request_tiles_of_system);
}

std::string isa_names(uint32_t bits) {
  std::string names;
  for (const IsaName& row : kIsaNames) {
    if ((bits & row.bit) == 0) continue;
    if (!names.empty()) names += '+';
    names += row.name;
  }
  return names.empty() ? "baseline" : names;
}

}  // namespace headrace::cpu
