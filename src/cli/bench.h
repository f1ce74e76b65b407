// Benchmarks: `headrace bench KIND`. One file per kind.
//
// Figures of the machine and of steps stand beside limits that the same run measured
// (bench/limits.h); those of a load beside nothing but themselves. Output is
// a table, or with --json one object per line.
#pragma once

#include <boost/json/object.hpp>

#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "base/result.h"
#include "bench/limits.h"
#include "bench/machine_file.h"
#include "options.h"

namespace headrace {

// Limits of this machine.
Status bench_machine(const Options& options, const std::vector<std::string>& arguments);
// A model's speed: prefill, decode at depths, batches.
Status bench_step(const Options& options, const std::vector<std::string>& arguments);
// Load on a server that speaks the OpenAI API, or on one of our own.
Status bench_serve(const Options& options, const std::vector<std::string>& arguments);
// Writes a model of random weights.
Status bench_synth(const Options& options, const std::vector<std::string>& arguments);

// What is needed of a machine: its limits, or what ops reach on it too.
enum class MachineParts : uint8_t { kLimits, kAll };
// The machine of --machine, or measured now: eight seconds, half a minute with ops, and not beside
// a working team.
Result<MachineFile> machine_of(const Options& options, MachineParts parts = MachineParts::kAll);
// The rows of the back end that create_backend() made of the same options.
Result<cpu::KernelSet> kernels_in_use(const Options& options, const Backend& backend);

// Prints one JSON object on a line of its own, at once.
void print_row(const boost::json::object& row);
// "16 KiB", "1.5 MiB": a size in the largest unit that keeps it above 1.
std::string size_text(size_t num_bytes);

}  // namespace headrace
