#include "lab/machine_view.h"

#include <algorithm>
#include <boost/json/value.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/json.h"
#include "base/strings.h"

namespace headrace::lab {
namespace {

namespace fs = std::filesystem;
using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr TimeUs kYoung = 900'000;

// The first line; empty where there is none.
std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<double> number_in(const fs::path& path) {
  const std::string line = first_line(path);
  char* end = nullptr;
  const double number = std::strtod(line.c_str(), &end);
  if (end == line.c_str()) return std::nullopt;
  return number;
}

// What a folder holds, in order; nothing where there is none.
std::vector<fs::path> entries_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator each(folder, failed); !failed && each != fs::directory_iterator();
       each.increment(failed)) {
    found.push_back(each->path());
  }
  std::ranges::sort(found);
  return found;
}

// "name : value" of /proc/cpuinfo, for each core in order.
std::vector<std::string> values_in(const fs::path& path, std::string_view name) {
  std::vector<std::string> values;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos || trim_spaces(line.substr(0, colon)) != name) continue;
    values.emplace_back(trim_spaces(std::string_view(line).substr(colon + 1)));
  }
  return values;
}

value share(double busy, double all) {
  return all <= 0 ? value() : value(std::clamp(busy / all, 0.0, 1.0));
}

object memory_view(const fs::path& path) {
  struct MemoryName {
    std::string_view source, name;
  };
  static constexpr MemoryName kRows[] = {{"MemTotal", "total_bytes"},
                                         {"MemAvailable", "available_bytes"},
                                         {"SwapTotal", "swap_total_bytes"},
                                         {"SwapFree", "swap_free_bytes"}};
  object memory;
  for (const MemoryName& row : kRows) {
    const auto found = values_in(path, row.source);  // "16316412 kB"
    memory[row.name] =
        found.empty() ? value() : value(std::strtoll(found[0].c_str(), nullptr, 10) * 1024);
  }
  return memory;
}

array load_view(const fs::path& path) {
  std::istringstream line(first_line(path));
  array load;
  for (double each = 0; load.size() < 3 && line >> each;) load.push_back(each);
  return load;
}

}  // namespace

value measured_read_rate(const std::string& folder) {
  std::ifstream in(fs::path(folder) / "machine.json");
  value rate;
  double largest = 0;
  for (std::string line; std::getline(in, line);) {
    const auto row = parse_json(line, "machine.json");
    if (!row.ok()) continue;
    const value* size = json_member(&*row, "working_set_bytes");
    const value* read = json_member(&*row, "all_threads_byte_s");
    if (size == nullptr || read == nullptr || !size->is_number() || !read->is_number()) continue;
    if (size->to_number<double>() < largest) continue;
    largest = size->to_number<double>();
    rate = read->to_number<double>();
  }
  return rate;
}

MachineView::MachineView(std::string root)
    : root_(std::move(root)), last_(core_times(path("/proc/stat"))) {}

const object& MachineView::at(TimeUs now) {
  if (!view_.empty() && now - last_us_ < kYoung) return view_;
  last_us_ = now;
  view_ = look();
  return view_;
}

object MachineView::look() {
  const std::vector<CoreTime> times = core_times(path("/proc/stat"));
  const auto megahertz = values_in(path("/proc/cpuinfo"), "cpu MHz");
  const auto busy_of = [&](size_t i) {
    if (i >= last_.size() || i >= times.size()) return value();
    return share(times[i].busy - last_[i].busy, times[i].all - last_[i].all);
  };
  array cores;
  for (size_t i = 1; i < times.size(); ++i) {
    const auto khz = number_in(
        path(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq", i - 1)));
    value mhz;
    if (khz) mhz = *khz / 1000;
    if (!khz && i <= megahertz.size()) mhz = std::strtod(megahertz[i - 1].c_str(), nullptr);
    cores.push_back(object{{"busy", busy_of(i)}, {"mhz", std::move(mhz)}});
  }
  const auto names = values_in(path("/proc/cpuinfo"), "model name");
  object made{{"processor", names.empty() ? "" : names[0]},
              {"busy", busy_of(0)},
              {"cores", std::move(cores)},
              {"load", load_view(path("/proc/loadavg"))},
              {"memory", memory_view(path("/proc/meminfo"))},
              {"temperatures", temperatures()},
              {"devices", devices()}};
  last_ = times;
  return made;
}

array MachineView::temperatures() const {
  array found;
  const auto add = [&found](const std::string& name, std::optional<double> millidegrees) {
    if (!millidegrees) return;
    found.push_back(object{{"name", name}, {"celsius", *millidegrees / 1000}});
  };
  for (const fs::path& zone : entries_in(path("/sys/class/thermal"))) {
    if (!zone.filename().string().starts_with("thermal_zone")) continue;
    add(first_line(zone / "type"), number_in(zone / "temp"));
  }
  for (const fs::path& chip : entries_in(path("/sys/class/hwmon"))) {
    for (const fs::path& file : entries_in(chip)) {
      const std::string name = file.filename().string();
      if (!name.starts_with("temp") || !name.ends_with("_input")) continue;
      const std::string label = first_line(chip / (name.substr(0, name.size() - 5) + "label"));
      add(first_line(chip / "name") + (label.empty() ? "" : " " + label), number_in(file));
    }
  }
  return found;
}

// Processors other than this one. Models run on the processor alone: none of them is in use.
array MachineView::devices() const {
  struct DeviceFolder {
    std::string_view folder, prefix, kind;
  };
  static constexpr DeviceFolder kRows[] = {{"/proc/driver/nvidia/gpus", "", "graphics processor"},
                                           {"/sys/class/kfd", "kfd", "graphics processor"},
                                           {"/sys/class/accel", "accel", "accelerator"},
                                           {"/sys/class/drm", "renderD", "graphics"}};
  array found;
  for (const DeviceFolder& row : kRows) {
    for (const fs::path& each : entries_in(path(row.folder))) {
      const std::string name = each.filename().string();
      if (!name.starts_with(row.prefix)) continue;
      const auto models = values_in(each / "information", "Model");
      found.push_back(object{
          {"name", models.empty() ? name : models[0]}, {"kind", row.kind}, {"state", "not used"}});
    }
  }
  return found;
}

}  // namespace headrace::lab
