#include "server/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace headrace {
namespace {

// Fields 3 and later of /proc/self/stat (proc(5)); the second, the name, may hold anything.
std::istringstream stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return std::istringstream(name_end == std::string::npos ? "" : line.substr(name_end + 1));
}

double boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  }
  return 0;
}

double count_descriptors() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // the listing had one itself
}

}  // namespace

ProcessUsage process_usage() {
  ProcessUsage usage;
  const double ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::istringstream fields = stat_fields();
  std::string text;
  double value = 0;
  fields >> text;  // 3: state
  for (int field = 4; field <= 24 && fields >> value; ++field) {
    if (field == 14 || field == 15) usage.cpu_seconds += value / ticks_per_second;
    if (field == 22) usage.start_time = boot_time() + value / ticks_per_second;
    if (field == 23) usage.virtual_bytes = value;
    if (field == 24) usage.resident_bytes = value * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  usage.open_descriptors = count_descriptors();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    usage.max_descriptors = static_cast<double>(limit.rlim_cur);
  }
  return usage;
}

}  // namespace headrace
