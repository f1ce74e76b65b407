// Which cores this process may use, and which one of its threads.
//
// Sources: sched_getaffinity, cgroup v1/v2 CPU quota (rounded up to whole cores). Read once at
// start; thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace headrace::cpu {

// Logical CPUs of the affinity mask, at most as many as the quota pays for; never empty.
std::vector<int> usable_cores();

// Binds the calling thread to these. Refused in some sandboxes, or for cores that do not exist:
// then the system places it as before, and results are the same.
void pin_to(std::span<const int> cores);

// Cores' worth of CPU time that the cgroups allow, rounded up; 0: no limit. `root` is the file
// system root, for tests.
int cgroup_core_limit(const std::string& root = "");

}  // namespace headrace::cpu
