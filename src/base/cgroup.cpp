#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace headrace {
namespace {

bool lists(const std::string& names, std::string_view wanted) {
  std::istringstream items(names);
  for (std::string item; std::getline(items, item, ',');) {
    if (item == wanted) return true;
  }
  return false;
}

// Spaces and backslashes in paths of mountinfo are written as "\040".
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size();
    plain += escaped ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    i += escaped ? 3 : 0;
  }
  return plain;
}

struct Hierarchy {
  std::string group;  // the process's path in it; empty for the top
  std::string names;  // controllers of version 1, empty for version 2
};

// Lines are "id:controllers:path".
std::vector<Hierarchy> hierarchies(std::string_view controller, const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    Hierarchy hierarchy{line.substr(second + 1), line.substr(first + 1, second - first - 1)};
    if (hierarchy.group == "/") hierarchy.group.clear();
    if (!hierarchy.names.empty() && !lists(hierarchy.names, controller)) continue;
    found.push_back(std::move(hierarchy));
  }
  return found;
}

struct Mount {
  std::string top;  // the group that is mounted; empty for the hierarchy's own top
  std::string point;
};

// Lines are "id parent device top point options [tags] - type source super-options".
std::vector<Mount> mounts(std::string_view controller, bool version_2, const std::string& root) {
  std::vector<Mount> found;
  std::ifstream lines(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string skipped, top, point, type, options;
    std::istringstream(line) >> skipped >> skipped >> skipped >> top >> point;
    std::istringstream(line.substr(dash + 3)) >> type >> skipped >> options;
    const bool wanted =
        version_2 ? type == "cgroup2" : type == "cgroup" && lists(options, controller);
    if (wanted) found.push_back({top == "/" ? "" : unescape(top), unescape(point)});
  }
  return found;
}

// Where the group lies below what is mounted; empty if it lies elsewhere.
std::string below(const std::string& group, const std::string& top) {
  const bool inside = group.starts_with(top) &&
                      (group.size() == top.size() || group[top.size()] == '/') &&
                      group.find("/..") == std::string::npos;
  return inside ? group.substr(top.size()) : "";
}

// The group's folder and all above it, down to the mount point's own.
void add_folders(const std::string& point, std::string group, bool version_2,
                 std::vector<CgroupFolder>* folders) {
  while (true) {
    const CgroupFolder folder{point + group, version_2};
    if (std::find(folders->begin(), folders->end(), folder) == folders->end()) {
      folders->push_back(folder);
    }
    const size_t slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root) {
  const std::string usual = root + "/sys/fs/cgroup";
  std::vector<CgroupFolder> folders;
  for (const Hierarchy& hierarchy : hierarchies(controller, root)) {
    const bool version_2 = hierarchy.names.empty();
    for (const Mount& mount : mounts(controller, version_2, root)) {
      add_folders(root + mount.point, below(hierarchy.group, mount.top), version_2, &folders);
    }
    // Where mounts are not told.
    const std::string group = below(hierarchy.group, "");
    add_folders(version_2 ? usual : usual + "/" + hierarchy.names, group, version_2, &folders);
    if (!version_2) add_folders(usual + "/" + std::string(controller), group, false, &folders);
  }
  add_folders(usual, "", true, &folders);
  add_folders(usual + "/" + std::string(controller), "", false, &folders);
  return folders;
}

}  // namespace headrace
