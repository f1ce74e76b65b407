#include "lab/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace headrace::lab {
namespace {

double seconds_of(const rusage& usage) {
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

double own_seconds() {
  rusage self{}, children{};
  getrusage(RUSAGE_SELF, &self);
  getrusage(RUSAGE_CHILDREN, &children);
  return seconds_of(self) + seconds_of(children);
}

}  // namespace

// "cpu0 user nice system idle iowait irq softirq steal ..."
std::vector<CoreTime> core_times(const std::string& path) {
  std::vector<CoreTime> times;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
    std::istringstream words(line);
    std::string name;
    double ticks[8] = {};
    words >> name;
    for (double& each : ticks) words >> each;
    CoreTime time;
    for (const double each : ticks) time.all += each;
    time.busy = time.all - ticks[3] - ticks[4];
    times.push_back(time);
  }
  return times;
}

MachineLoad::Look MachineLoad::look() {
  Look found;
  found.at_us = now_us();
  found.own_s = own_seconds();
  found.num_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const std::vector<CoreTime> times = core_times("/proc/stat");
  if (!times.empty()) found.busy_s = times[0].busy / static_cast<double>(sysconf(_SC_CLK_TCK));
  return found;
}

MachineLoad::MachineLoad() : last_(look()) {}

double MachineLoad::others_share() {
  const Look next = look();
  const double seconds = static_cast<double>(next.at_us - last_.at_us) * 1e-6 * next.num_cores;
  const double others = (next.busy_s - last_.busy_s) - (next.own_s - last_.own_s);
  last_ = next;
  return seconds <= 0 ? 0 : std::clamp(others / seconds, 0.0, 1.0);
}

}  // namespace headrace::lab
