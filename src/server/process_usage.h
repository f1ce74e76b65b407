// What the system says that this process uses. Linux: /proc/self.
#pragma once

namespace headrace {

// Zero where the system does not tell.
struct ProcessUsage {
  double cpu_seconds = 0;  // user and system
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_descriptors = 0;
  double max_descriptors = 0;  // the soft limit
  double start_time = 0;       // wall clock, seconds since 1970
};

ProcessUsage process_usage();

}  // namespace headrace
