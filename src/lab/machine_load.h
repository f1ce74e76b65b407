// MachineLoad: how much of the machine others used between two looks, from /proc/stat.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace headrace::lab {

// In ticks, since the machine started.
struct CoreTime {
  double busy = 0, all = 0;
};
// Of a file like /proc/stat: all cores together, then each. Empty where it cannot be read.
std::vector<CoreTime> core_times(const std::string& path);

class MachineLoad {
 public:
  MachineLoad();  // the first look
  // Share of all cores that was busy since the last look and not by this process or its ended
  // children: 0 to 1. 0 where the system does not tell.
  double others_share();

 private:
  struct Look {
    double busy_s = 0, own_s = 0;
    TimeUs at_us = 0;
    int num_cores = 0;
  };
  static Look look();
  Look last_;
};

}  // namespace headrace::lab
