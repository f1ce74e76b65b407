#include "lab/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

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

// The first line: user nice system idle iowait irq softirq steal.
MachineLoad::Look MachineLoad::look() {
  Look found;
  found.at_us = now_us();
  found.own_s = own_seconds();
  found.num_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  std::ifstream in("/proc/stat");
  std::string name;
  double ticks[8] = {};
  in >> name;
  for (double& each : ticks) in >> each;
  const double idle = ticks[3] + ticks[4];
  double all = 0;
  for (const double each : ticks) all += each;
  found.busy_s = (all - idle) / static_cast<double>(sysconf(_SC_CLK_TCK));
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
