// Instruction sets that this process may use, as IsaBits.
//
// Sources: CPUID, XGETBV and arch_prctl. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace headrace::cpu {

// What the processor says of itself (leaves of CPUID) and which registers the system saves (XCR0).
struct CpuidWords {
  uint32_t leaf_1_ecx = 0;
  uint32_t leaf_7_ebx = 0;
  uint32_t leaf_7_ecx = 0;
  uint32_t leaf_7_edx = 0;
  uint32_t leaf_7_1_eax = 0;
  uint64_t saved_state = 0;
};
// IsaBits of these words. `request_tiles` is called only where tiles exist: it asks the system for
// the permission to use them and says whether it was given.
uint32_t isa_of(const CpuidWords& words, bool (*request_tiles)());

// IsaBits that the processor has, the operating system supports and this process may use. Linux
// wants to be asked before a process uses tile registers; the permission is the whole process's,
// for good, and makes the frames of its signal handlers 8 KB larger.
uint32_t detect_isa();
// "avx2+fma+f16c" of a set of IsaBits; "baseline" for none.
std::string isa_names(uint32_t bits);

}  // namespace headrace::cpu
