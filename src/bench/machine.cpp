#include "bench/machine.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/team/topology.h"

namespace headrace::cpu {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "48K", "32768K", "8M".
size_t parse_cache_size(const std::string& text) {
  size_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(parsed.ptr, text.data() + text.size());
  return number << (unit == "K" ? 10 : unit == "M" ? 20 : 0);
}

// The value after "name :" in /proc/cpuinfo, or "name:" in /proc/meminfo.
std::string field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(' ', colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::vector<CacheInfo> read_caches(const std::string& cpus) {
  std::vector<CacheInfo> caches;
  for (int i = 0; i < 16; ++i) {
    const std::string folder = cpus + "/cpu0/cache/index" + std::to_string(i);
    CacheInfo cache;
    std::ifstream(folder + "/level") >> cache.level;
    if (cache.level == 0) break;
    cache.type = first_line(folder + "/type");
    cache.num_bytes = parse_cache_size(first_line(folder + "/size"));
    cache.num_logical_cpus = count_listed(first_line(folder + "/shared_cpu_list"));
    caches.push_back(std::move(cache));
  }
  std::sort(caches.begin(), caches.end(),
            [](const CacheInfo& a, const CacheInfo& b) { return a.level < b.level; });
  return caches;
}

// Each core once, by the list of its own logical CPUs.
int count_cores(const std::string& cpus, int num_logical_cpus) {
  std::set<std::string> cores;
  for (int i = 0; i < num_logical_cpus; ++i) {
    const std::string siblings =
        first_line(cpus + "/cpu" + std::to_string(i) + "/topology/thread_siblings_list");
    if (!siblings.empty()) cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

// "always [madvise] never": the one in brackets.
std::string chosen(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close <= open ? "" : line.substr(open + 1, close - open - 1);
}

}  // namespace

int count_listed(const std::string& list) {
  int total = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0;
    const char* end = range.data() + range.size();
    const auto parsed = std::from_chars(range.data(), end, first);
    if (parsed.ec != std::errc()) continue;
    int last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') std::from_chars(parsed.ptr + 1, end, last);
    if (last >= first) total += last - first + 1;
  }
  return total;
}

size_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  size_t kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> kilobytes;
  }
  return kilobytes << 10;
}

MachineInfo describe_machine(const std::string& root) {
  const std::string cpus = root + "/sys/devices/system/cpu";
  MachineInfo machine;
  machine.processor = field(root + "/proc/cpuinfo", "model name");
  machine.num_logical_cpus = count_listed(first_line(cpus + "/online"));
  machine.num_cores = count_cores(cpus, machine.num_logical_cpus);
  machine.threads_per_core = count_listed(first_line(cpus + "/cpu0/topology/thread_siblings_list"));
  machine.num_usable = static_cast<int>(usable_cores().size());
  machine.cgroup_cores = cgroup_core_limit(root);
  machine.num_numa_nodes = count_listed(first_line(root + "/sys/devices/system/node/online"));
  std::istringstream(field(root + "/proc/meminfo", "MemTotal")) >> machine.memory_bytes;
  machine.memory_bytes <<= 10;
  machine.large_pages = chosen(first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  machine.isa = detect_isa();
  machine.caches = read_caches(cpus);
  return machine;
}

}  // namespace headrace::cpu
