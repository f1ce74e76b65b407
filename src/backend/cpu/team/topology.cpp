#include "backend/cpu/team/topology.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/cgroup.h"

namespace headrace::cpu {
namespace {

// Reads "quota period" of one cgroup v2 file, or a quota file and a period file of v1.
double read_quota(const std::string& path, const std::string& period_path) {
  std::ifstream file(path);
  std::string quota;
  double period = 0;
  if (!(file >> quota) || quota == "max") return 0;
  if (period_path.empty()) {
    file >> period;
  } else {
    std::ifstream(period_path) >> period;
  }
  const double amount = std::atof(quota.c_str());
  return amount > 0 && period > 0 ? amount / period : 0;
}

void keep_smaller(double* limit, double found) {
  if (found > 0 && (*limit <= 0 || found < *limit)) *limit = found;
}

}  // namespace

int cgroup_core_limit(const std::string& root) {
  double limit = 0;
  for (const CgroupFolder& folder : cgroup_folders("cpu", root)) {
    keep_smaller(&limit, folder.version_2 ? read_quota(folder.path + "/cpu.max", "")
                                          : read_quota(folder.path + "/cpu.cfs_quota_us",
                                                       folder.path + "/cpu.cfs_period_us"));
  }
  return static_cast<int>(std::ceil(limit));
}

std::vector<int> usable_cores() {
  std::vector<int> cores;
  for (size_t max_cpus = 1024; max_cpus <= 65536; max_cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(max_cpus);
    const size_t num_bytes = CPU_ALLOC_SIZE(max_cpus);
    if (sched_getaffinity(0, num_bytes, set) == 0) {
      for (size_t i = 0; i < max_cpus; ++i) {
        if (CPU_ISSET_S(i, num_bytes, set)) cores.push_back(static_cast<int>(i));
      }
      CPU_FREE(set);
      break;
    }
    CPU_FREE(set);
  }
  if (cores.empty()) cores.push_back(0);
  const int limit = cgroup_core_limit();
  if (limit > 0 && static_cast<size_t>(limit) < cores.size()) {
    cores.resize(static_cast<size_t>(limit));
  }
  return cores;
}

void pin_to(std::span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  }
  if (CPU_COUNT(&set) == 0) return;
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace headrace::cpu
