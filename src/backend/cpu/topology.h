// What this process may use of the machine: cores and instruction sets.
//
// Sources: sched_getaffinity, cgroup v1/v2 CPU quota (rounded up to whole cores), CPUID and XGETBV.
// Read once at start; thread-safe.
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

// IsaBits that both the processor and the operating system support.
uint32_t detect_isa();
// "avx2+fma+f16c" of a set of IsaBits; "baseline" for none.
std::string isa_names(uint32_t bits);

}  // namespace headrace::cpu
