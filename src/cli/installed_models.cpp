// headrace list, headrace rm: the models in the folder of pulled ones.

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/strings.h"
#include "checkpoint/hub/installed.h"
#include "cli/command.h"
#include "cli/word_wrap.h"

namespace headrace {
namespace {

std::string day_of(int64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  tm parts{};
  char text[16];
  localtime_r(&time, &parts);
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d", &parts)};
}

void print_json(const InstalledModel& model) {
  const boost::json::object row{{"name", model.name},
                                {"path", model.path},
                                {"bytes", model.num_bytes},
                                {"modified", model.modified}};
  std::printf("%s\n", boost::json::serialize(row).c_str());
}

void print_table(const std::vector<InstalledModel>& models) {
  size_t widest = 4;
  for (const InstalledModel& model : models) widest = std::max(widest, model.name.size());
  std::printf("%-*s  %10s  %-10s  %s\n", static_cast<int>(widest), "name", "size", "pulled",
              "path");
  for (const InstalledModel& model : models) {
    std::printf("%-*s  %10s  %-10s  %s\n", static_cast<int>(widest),
                without_controls(model.name).c_str(), format_bytes(model.num_bytes).c_str(),
                day_of(model.modified).c_str(), without_controls(model.path).c_str());
  }
}

}  // namespace

Result<int> run_list(const Options& options) {
  const auto models = TRY(list_installed(options.text("--store")));
  if (options.flag("--json")) {
    for (const InstalledModel& model : models) print_json(model);
  } else if (!models.empty()) {
    print_table(models);
  } else {
    std::fprintf(stderr, "no model has been pulled yet; headrace pull --help names some\n");
  }
  return 0;
}

// All that can be removed are, also where one of them is not there.
Result<int> run_rm(const Options& options) {
  int status = 0;
  for (const std::string& name : options.positionals()) {
    const auto freed = remove_installed(name, options.text("--store"));
    if (!freed.ok()) {
      std::fprintf(stderr, "headrace: %s\n", freed.error().to_string().c_str());
      status = 1;
    } else if (!options.flag("--quiet")) {
      std::fprintf(stderr, "removed %s, %s\n", name.c_str(), format_bytes(*freed).c_str());
    }
  }
  return status;
}

}  // namespace headrace
