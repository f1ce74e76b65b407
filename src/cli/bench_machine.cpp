// headrace bench machine: what this machine is and how fast it can be.

#include <boost/json.hpp>

#include <cstdio>

#include "backend/cpu/kernels/isa.h"
#include "bench/machine.h"
#include "bench/measure_rates.h"
#include "cli/bench.h"

namespace headrace {
namespace {

namespace json = boost::json;

json::object describe(const cpu::MachineInfo& machine) {
  json::array caches;
  for (const cpu::CacheInfo& cache : machine.caches) {
    caches.push_back({{"level", cache.level},
                      {"type", cache.type},
                      {"bytes", cache.num_bytes},
                      {"logical_cpus", cache.num_logical_cpus}});
  }
  return {{"kind", "machine"},
          {"processor", machine.processor},
          {"isa", cpu::isa_names(machine.isa)},
          {"logical_cpus", machine.num_logical_cpus},
          {"cores", machine.num_cores},
          {"threads_per_core", machine.threads_per_core},
          {"usable_cpus", machine.num_usable},
          {"cgroup_cores", machine.cgroup_cores},
          {"numa_nodes", machine.num_numa_nodes},
          {"memory_bytes", machine.memory_bytes},
          {"large_pages", machine.large_pages},
          {"caches", std::move(caches)}};
}

void print_machine(const cpu::MachineInfo& machine) {
  std::printf("processor      %s\n", machine.processor.c_str());
  std::printf("isa            %s\n", cpu::isa_names(machine.isa).c_str());
  std::printf("cores          %d (%d logical CPUs, %d per core); usable here %d; cgroup quota %s\n",
              machine.num_cores, machine.num_logical_cpus, machine.threads_per_core,
              machine.num_usable,
              machine.cgroup_cores == 0 ? "none" : std::to_string(machine.cgroup_cores).c_str());
  std::printf("memory         %s on %d NUMA node%s; large pages: %s\n",
              size_text(machine.memory_bytes).c_str(), machine.num_numa_nodes,
              machine.num_numa_nodes == 1 ? "" : "s", machine.large_pages.c_str());
  for (const cpu::CacheInfo& cache : machine.caches) {
    std::printf("L%d %-11s %s, shared by %d logical CPU%s\n", cache.level, cache.type.c_str(),
                size_text(cache.num_bytes).c_str(), cache.num_logical_cpus,
                cache.num_logical_cpus == 1 ? "" : "s");
  }
}

void print_limits(const cpu::MachineLimits& limits) {
  std::printf("\n%-22s %10s %10s  (%d threads)\n", "peak, T operations/s", "1 thread", "all",
              limits.num_threads);
  for (const cpu::PeakRate& peak : limits.peaks) {
    std::printf("%-22s %10.3f %10.3f\n", peak.name.c_str(), peak.operations.one_thread / 1e12,
                peak.operations.all_threads / 1e12);
  }
  std::printf("\n%-22s %10s %10s\n", "reads, GB/s", "1 thread", "all");
  for (const cpu::ReadRate& read : limits.reads) {
    std::printf("%-22s %10.1f %10.1f\n", size_text(read.num_bytes).c_str(),
                read.bytes.one_thread / 1e9, read.bytes.all_threads / 1e9);
  }
}

std::string_view item_name(cpu::SequenceItem item) {
  return item == cpu::SequenceItem::kProduct ? "product" : "load";
}

void print_sequences(const std::vector<cpu::SequenceTime>& sequences) {
  if (sequences.empty()) return;
  std::printf("\n%-46s %10s %10s\n", "tiles, ns for one product or load of a thread", "1 thread",
              "all");
  for (const cpu::SequenceTime& time : sequences) {
    std::printf("%-46s %10.2f %10.2f\n", time.name.c_str(), time.one_thread * 1e9,
                time.all_threads * 1e9);
  }
}

void print_json_sequences(int num_threads, const std::vector<cpu::SequenceTime>& sequences) {
  for (const cpu::SequenceTime& time : sequences) {
    print_row({{"kind", "sequence"},
               {"name", time.name},
               {"isa", cpu::isa_names(time.isa)},
               {"of", item_name(time.item)},
               {"threads", num_threads},
               {"one_thread_s", time.one_thread},
               {"all_threads_s", time.all_threads}});
  }
}

void print_json(const cpu::MachineInfo& machine, const cpu::MachineLimits& limits) {
  print_row(describe(machine));
  for (const cpu::PeakRate& peak : limits.peaks) {
    print_row({{"kind", "peak"},
               {"name", peak.name},
               {"arithmetic", cpu::peak_kind_name(peak.kind)},
               {"isa", cpu::isa_names(peak.isa)},
               {"threads", limits.num_threads},
               {"one_thread_op_s", peak.operations.one_thread},
               {"all_threads_op_s", peak.operations.all_threads}});
  }
  for (const cpu::ReadRate& read : limits.reads) {
    print_row({{"kind", "read"},
               {"working_set_bytes", read.num_bytes},
               {"threads", limits.num_threads},
               {"one_thread_byte_s", read.bytes.one_thread},
               {"all_threads_byte_s", read.bytes.all_threads}});
  }
}

void print_rates(int num_threads, const OpRates& rates) {
  for (const OpRate& rate : rates.all()) {
    json::object row{{"kind", "op"}, {"op", rated_op_name(rate.op)}, {"threads", num_threads}};
    if (!rate.of.empty()) row["of"] = rate.of;
    row["size"] = rate.size;
    if (rate.working_set > 0) row["working_set_bytes"] = rate.working_set;
    row["unit_s"] = rate.seconds;
    print_row(row);
  }
}

}  // namespace

Status bench_machine(const Options& options, const std::vector<std::string>&) {
  const cpu::MachineInfo machine = cpu::describe_machine();
  const cpu::MachineLimits limits =
      TRY(cpu::measure_machine(static_cast<int>(options.integer("--threads"))));
  const std::vector<cpu::SequenceTime> sequences = TRY(cpu::sequence_times(limits.num_threads));
  if (options.flag("--json")) {
    const OpRates rates = TRY(measure_all_rates(limits.num_threads));
    print_json(machine, limits);
    print_json_sequences(limits.num_threads, sequences);
    print_rates(limits.num_threads, rates);
  } else {
    print_machine(machine);
    print_limits(limits);
    print_sequences(sequences);
  }
  return {};
}

}  // namespace headrace
