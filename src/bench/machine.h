// What the machine is: processor, cores, caches, memory. For reports; nothing is tuned by it.
//
// Sources: /proc and /sys of Linux, sched_getaffinity, cgroups, CPUID. What the system does not
// tell is 0 or empty. Read on demand; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::cpu {

struct CacheInfo {
  int level = 0;
  std::string type;  // "Data", "Instruction", "Unified"
  size_t num_bytes = 0;
  int num_logical_cpus = 0;  // that share one such cache
};

struct MachineInfo {
  std::string processor;
  int num_logical_cpus = 0;  // of the system, in operation
  int num_cores = 0;
  int threads_per_core = 0;
  int num_usable = 0;    // logical CPUs that affinity and quota leave to this process
  int cgroup_cores = 0;  // quota, rounded up; 0: none
  int num_numa_nodes = 0;
  size_t memory_bytes = 0;
  std::string large_pages;        // "madvise": the system's policy
  uint32_t isa = 0;               // IsaBits
  std::vector<CacheInfo> caches;  // of the first logical CPU, by level
};

// `root` is the file system root, for tests.
MachineInfo describe_machine(const std::string& root = "");

// Resident bytes of this process, as the system counts them; 0 if it does not tell.
size_t resident_bytes();

// Items in a list of ranges such as "0-3,8": how Linux writes sets of CPUs and nodes.
int count_listed(const std::string& list);

}  // namespace headrace::cpu
