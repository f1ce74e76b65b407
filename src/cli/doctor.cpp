// headrace doctor: what this machine is, what is missing, and what limits it.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <boost/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/isa.h"
#include "base/strings.h"
#include "base/system_memory.h"
#include "bench/machine.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/hub/installed.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLittleSpace = uintmax_t{1} << 30;  // less than most models take

enum class Verdict : uint8_t { kGood, kLimits, kMissing };

struct Finding {
  std::string_view subject;
  Verdict verdict = Verdict::kGood;
  std::string found;
  std::string advice;  // empty: nothing to do
};

Finding check_processor(const cpu::MachineInfo& machine) {
  Finding finding{"processor",
                  Verdict::kGood,
                  fmt::format("{}: {}", machine.processor, cpu::isa_names(machine.isa)),
                  {}};
  if (cpu::isa_names(machine.isa).find("avx2") == std::string::npos) {
    finding.verdict = Verdict::kLimits;
    finding.advice = "without AVX2 only the plain kernels run, hundreds of times slower";
  }
  return finding;
}

// A short check of every kernel runs when a back end is made; a unit that fails is left out.
Finding check_kernels() {
  const auto backend = create_cpu_backend({});
  if (!backend.ok()) return {"kernels", Verdict::kMissing, backend.error().message, {}};
  return {"kernels", Verdict::kGood,
          fmt::format("{} on {} threads, checked just now", (*backend)->isa(),
                      (*backend)->num_threads()),
          "headrace verify kernels checks all shapes"};
}

Finding check_cores(const cpu::MachineInfo& machine) {
  Finding finding{"cores",
                  Verdict::kGood,
                  fmt::format("{} cores, {} usable", machine.num_cores, machine.num_usable),
                  {}};
  if (machine.cgroup_cores > 0 && machine.cgroup_cores < machine.num_cores) {
    finding.verdict = Verdict::kLimits;
    finding.advice = fmt::format("the cgroup's quota leaves {} of them", machine.cgroup_cores);
  } else if (machine.num_usable < machine.num_cores) {
    finding.verdict = Verdict::kLimits;
    finding.advice = "affinity (taskset, cpuset) leaves out the others";
  }
  return finding;
}

Finding check_memory(const cpu::MachineInfo& machine) {
  const size_t available = available_memory_bytes();
  Finding finding{"memory", Verdict::kGood,
                  fmt::format("{} of {} can be used now", format_bytes(available),
                              format_bytes(machine.memory_bytes)),
                  "headrace inspect MODEL shows what a model needs"};
  if (available < size_t{1} << 30) {
    finding.verdict = Verdict::kLimits;
    finding.advice = "less than 1 GiB: only the smallest models fit";
  }
  return finding;
}

Finding check_large_pages(const cpu::MachineInfo& machine) {
  Finding finding{"large pages", Verdict::kGood, machine.large_pages, {}};
  if (machine.large_pages == "always" || machine.large_pages == "madvise") return finding;
  if (finding.found.empty()) finding.found = "the system does not tell";
  finding.verdict = Verdict::kLimits;
  finding.advice = "weights are read faster from large pages: set transparent_hugepage to madvise";
  return finding;
}

Finding check_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  Finding finding{"open files",
                  Verdict::kGood,
                  fmt::format("{} of at most {}", limit.rlim_cur, limit.rlim_max),
                  {}};
  if (limit.rlim_max < 4096) {
    finding.verdict = Verdict::kLimits;
    finding.advice = "each connection takes one: raise it with ulimit -n for many clients";
  }
  return finding;
}

Finding check_store(const Options& options) {
  const auto models = list_installed(options.text("--store"));
  if (!models.ok()) {
    return {"model folder", Verdict::kMissing, models.error().message,
            "name another with --store or HEADRACE_HOME"};
  }
  const std::string folder =
      options.text("--store").empty() ? default_store_dir() : options.text("--store");
  std::error_code error;
  fs::path existing = folder;
  while (!existing.empty() && !fs::exists(existing, error)) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing.empty() ? "/" : existing, error);
  Finding finding{
      "model folder",
      Verdict::kGood,
      fmt::format("{}: {} model{}, {} free", folder, models->size(), models->size() == 1 ? "" : "s",
                  error ? "?" : format_bytes(space.available)),
      {}};
  if (!fs::is_directory(existing, error) || access(existing.c_str(), W_OK) != 0) {
    finding.verdict = Verdict::kMissing;
    finding.advice = "it cannot be written: name another with --store or HEADRACE_HOME";
  } else if (!error && space.available < kLittleSpace) {
    finding.verdict = Verdict::kLimits;
    finding.advice = "the disk is nearly full: free some, or name another with --store";
  } else if (models->empty()) {
    finding.advice = "headrace pull smollm2:135m gets a small model";
  }
  return finding;
}

Finding check_port(const Options& options) {
  const auto port = static_cast<uint16_t>(options.integer("--port"));
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int one = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const bool is_free =
      bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(descriptor);
  if (is_free) return {"port", Verdict::kGood, fmt::format("{} is free", port), {}};
  return {"port", Verdict::kLimits, fmt::format("{} is in use", port),
          "by another headrace (headrace ps), or name another with serve --port"};
}

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"good", "limits", "missing"};
  return kNames[static_cast<size_t>(verdict)];
}

void print(const Finding& finding) {
  constexpr int kColumn = 26;
  const std::string mark = fmt::format("{:<8} {}", verdict_name(finding.verdict), finding.subject);
  std::string text = finding.found;
  if (!finding.advice.empty()) text += fmt::format("; {}", finding.advice);
  std::fputs(help_entry(mark, without_controls(text), kColumn, help_width()).c_str(), stdout);
}

}  // namespace

// Exit status 1 if something is missing without which nothing runs.
Result<int> run_doctor(const Options& options) {
  const cpu::MachineInfo machine = cpu::describe_machine();
  const Finding findings[] = {
      check_processor(machine),   check_kernels(),     check_cores(machine), check_memory(machine),
      check_large_pages(machine), check_descriptors(), check_store(options), check_port(options)};
  bool runs = true;
  for (const Finding& finding : findings) {
    runs = runs && finding.verdict != Verdict::kMissing;
    if (!options.flag("--json")) {
      print(finding);
      continue;
    }
    const boost::json::object row{{"subject", finding.subject},
                                  {"verdict", verdict_name(finding.verdict)},
                                  {"found", finding.found},
                                  {"advice", finding.advice}};
    std::printf("%s\n", boost::json::serialize(row).c_str());
  }
  return runs ? 0 : 1;
}

}  // namespace headrace
