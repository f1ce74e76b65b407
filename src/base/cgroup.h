// The control groups that bind this process: where the files of its own group lie, and those of
// all groups above it, as far as they can be seen from here.
//
// Source: /proc/self/cgroup and /proc/self/mountinfo. In a container the group's path often names a
// place outside; what is mounted then stands for it. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct CgroupFolder {
  std::string path;
  bool version_2 = false;

  bool operator==(const CgroupFolder&) const = default;
};

// Folders that may hold limits of one controller ("memory", "cpu"), each group before the one above
// it. Not all need exist. `root` is the file system root, for tests.
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root = "");

}  // namespace headrace
