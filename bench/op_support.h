// What benchmarks of single ops share: a back end, random numbers and weights, a clock, the median.
// Header of bench/*.cpp only.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "bench/synth.h"

namespace headrace {

// Null where there is none, which it says for `program`.
inline std::unique_ptr<Backend> backend_or_message(const char* program, const std::string& isa,
                                                   int num_threads) {
  auto backend = create_cpu_backend({.isa = isa, .num_threads = num_threads});
  if (backend.ok()) return std::move(*backend);
  fmt::print(stderr, "{}: {}\n", program, backend.error().to_string());
  return nullptr;
}

// The upper one of an even number.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline std::vector<float> random_floats(int64_t count, float scale = 1) {
  static std::mt19937 random(11);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// With one thread the time is the process's own, which other processes disturb less.
inline double op_seconds(int num_threads) {
  timespec now{};
  clock_gettime(num_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// As many weights as the form has parts and experts, all of the same random blocks: what they hold
// does not matter.
inline std::unique_ptr<PackedWeight> random_weight(Backend& backend, DType dtype, PackForm form,
                                                   int64_t outputs, int64_t inputs) {
  const DTypeRow& row = dtype_row(dtype);
  std::vector<std::byte> blocks(static_cast<size_t>(outputs * inputs) / row.block_elements *
                                row.block_bytes);
  uint64_t state = 7;
  fill_random_blocks(dtype, inputs, &state, blocks);
  WeightView view;
  view.name = "random";
  view.num_outputs = outputs;
  view.num_inputs = inputs;
  view.values.data = blocks.data();
  view.values.dtype = dtype;
  view.values.rank = 2;
  view.values.shape = {outputs, inputs};
  view.values.num_bytes = blocks.size();
  const int64_t parts = form.role == WeightRole::kGateUp ? 2 : 1;
  const std::vector<WeightView> views(static_cast<size_t>(parts * form.num_experts), view);
  return backend.pack(views, form).value();
}

}  // namespace headrace
