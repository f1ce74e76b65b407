#include "base/system_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/cgroup.h"
#include "base/strings.h"

namespace headrace {
namespace {

// A file with one number; nothing for "max", or where it is absent.
std::optional<size_t> read_number(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// The number after `name` in a file of lines "name number" or "name: number".
size_t field(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    const char next = line[name.size()];
    if (next != ' ' && next != ':') continue;
    size_t value = 0;
    if (std::istringstream(line.substr(name.size() + 1)) >> value) return value;
  }
  return 0;
}

size_t left_of(size_t limit, size_t used) { return limit > used ? limit - used : 0; }

// Pages of files that the group holds and the system would drop for others' sake.
size_t reclaimable(const std::string& stat, std::string_view prefix, std::string_view dirty_name,
                   std::string_view writeback_name) {
  const std::string before(prefix);
  const size_t clean_and_dirty =
      field(stat, before + "inactive_file") + field(stat, before + "active_file");
  const size_t dirty = field(stat, before + std::string(dirty_name)) +
                       field(stat, before + std::string(writeback_name));
  return left_of(clean_and_dirty, dirty);
}

struct GroupUse {
  size_t limit = SIZE_MAX;
  size_t used = 0;
};

GroupUse read_group(const CgroupFolder& folder) {
  const std::string& path = folder.path;
  GroupUse use;
  if (folder.version_2) {
    use.limit = std::min(read_number(path + "/memory.max").value_or(SIZE_MAX),
                         read_number(path + "/memory.high").value_or(SIZE_MAX));
    use.used = left_of(read_number(path + "/memory.current").value_or(0),
                       reclaimable(path + "/memory.stat", "", "file_dirty", "file_writeback"));
    return use;
  }
  use.limit = read_number(path + "/memory.limit_in_bytes").value_or(SIZE_MAX);
  // Says what groups above allow, also those that a container does not see.
  if (const size_t above = field(path + "/memory.stat", "hierarchical_memory_limit"); above > 0) {
    use.limit = std::min(use.limit, above);
  }
  use.used = left_of(read_number(path + "/memory.usage_in_bytes").value_or(0),
                     reclaimable(path + "/memory.stat", "total_", "dirty", "writeback"));
  return use;
}

// The soft limit in a line "Max address space  1234  unlimited  bytes" of /proc/self/limits.
size_t soft_limit(const std::string& root, std::string_view name) {
  std::ifstream file(root + "/proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    size_t value = 0;
    if (std::istringstream(line.substr(name.size())) >> value) return value;
  }
  return SIZE_MAX;
}

void keep_smaller(MemorySupply* supply, MemorySupply found) {
  if (found.bytes < supply->bytes) *supply = std::move(found);
}

// Address space that is no memory: stacks of threads, and what the allocator reserves for each.
constexpr size_t kReservations = size_t{160} << 20;

void add_process_limits(const std::string& root, MemorySupply* supply) {
  const size_t space = soft_limit(root, "Max address space");
  const size_t data = soft_limit(root, "Max data size");
  const size_t mapped = field(root + "/proc/self/status", "VmSize") << 10;
  const size_t written = field(root + "/proc/self/status", "VmData") << 10;
  if (space != SIZE_MAX) {
    keep_smaller(supply, {left_of(space, mapped + kReservations),
                          "the limit of address space (ulimit -v), less 160 MiB for threads,",
                          "raise ulimit -v"});
  }
  if (data != SIZE_MAX) {
    keep_smaller(supply,
                 {left_of(data, written), "the limit of data (ulimit -d)", "raise ulimit -d"});
  }
}

}  // namespace

MemorySupply memory_supply(const std::string& root) {
  MemorySupply supply;
  if (const size_t kib = field(root + "/proc/meminfo", "MemAvailable"); kib > 0) {
    supply = {kib << 10, "this machine's free memory", "end other programs"};
  }
  for (const CgroupFolder& folder : cgroup_folders("memory", root)) {
    const GroupUse use = read_group(folder);
    if (use.limit == SIZE_MAX) continue;
    keep_smaller(&supply, {left_of(use.limit, use.used),
                           fmt::format("the memory limit of {} in '{}'", format_bytes(use.limit),
                                       folder.path.substr(root.size())),
                           "raise the control group's or container's memory limit"});
  }
  add_process_limits(root, &supply);
  return supply;
}

size_t available_memory_bytes(const std::string& root) { return memory_supply(root).bytes; }

}  // namespace headrace
