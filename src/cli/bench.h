// Benchmarks without a server: `headrace bench KIND`. One file per kind.
//
// Each figure stands beside a limit that the same run measured (bench/limits.h). Output is
// a table, or with --json one object per line.
#pragma once

#include <boost/json/object.hpp>

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/limits.h"
#include "options.h"

namespace headrace {

// Limits of this machine.
Status bench_machine(const Options& options, const std::vector<std::string>& arguments);
// A model's speed: prefill, decode at depths, batches.
Status bench_step(const Options& options, const std::vector<std::string>& arguments);
// Writes a model of random weights.
Status bench_synth(const Options& options, const std::vector<std::string>& arguments);

// Prints one JSON object on a line of its own, at once.
void print_row(const boost::json::object& row);
// "16 KiB", "1.5 MiB": a size in the largest unit that keeps it above 1.
std::string size_text(size_t num_bytes);

}  // namespace headrace
