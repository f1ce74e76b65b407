// headrace bench KIND ...: the table of kinds.

#include "cli/bench.h"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/command.h"

namespace headrace {
namespace {

struct BenchKind {
  std::string_view name, arguments;
  size_t num_arguments;
  Status (*run)(const Options&, const std::vector<std::string>&);
};

constexpr BenchKind kBenchKinds[] = {
    {"machine", "", 0, bench_machine},
    {"step", "MODEL", 1, bench_step},
    {"serve", "URL|MODEL", 1, bench_serve},
    {"synth", "", 0, bench_synth},
};

}  // namespace

Result<int> run_bench(const Options& options) {
  const auto& arguments = options.positionals();
  const auto kind =
      std::find_if(std::begin(kBenchKinds), std::end(kBenchKinds),
                   [&](const BenchKind& row) { return row.name == arguments.front(); });
  if (kind == std::end(kBenchKinds)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no benchmark '{}'; the kinds are machine, step, serve and synth",
                      arguments.front());
  }
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (rest.size() != kind->num_arguments) {
    return make_error(ErrorCode::kInvalidArgument,
                      "'bench {}' takes {} argument{} but got {}; usage: headrace bench {} {}",
                      kind->name, kind->num_arguments, kind->num_arguments == 1 ? "" : "s",
                      rest.size(), kind->name, kind->arguments);
  }
  TRY(kind->run(options, rest));
  return 0;
}

void print_row(const boost::json::object& row) {
  std::printf("%s\n", boost::json::serialize(row).c_str());
  std::fflush(stdout);
}

std::string size_text(size_t num_bytes) {
  constexpr std::array<const char*, 4> kUnits = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(num_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace headrace
