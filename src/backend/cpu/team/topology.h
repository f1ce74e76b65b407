// What this process may use of the machine: cores and instruction sets.
//
// Sources: sched_getaffinity, cgroup v1/v2 CPU quota (rounded up to whole cores), CPUID, XGETBV and
// arch_prctl. Read once at start; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::cpu {

// Logical CPUs of the affinity mask, at most as many as the quota pays for; never empty.
std::vector<int> usable_cores();

// Cores' worth of CPU time that the cgroups allow, rounded up; 0: no limit. `root` is the file
// system root, for tests.
int cgroup_core_limit(const std::string& root = "");

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
