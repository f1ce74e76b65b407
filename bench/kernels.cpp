// bench_kernels [--unit NAME] [--megabytes N] [--repeats N]
//
// Each matmul row of the kernel table on one thread: GB/s of packed weights and GFLOP/s for M = 1
// and M = 64, beside the read bandwidth and the FMA peak that the same run measured with the same
// clock. Weights are larger than the caches, so M = 1 shows the decode case. Time is the thread's
// processor time: other processes disturb it less than the wall clock. One JSON object per line; a
// row whose result is wrong stops the program.

#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/topology.h"
#include "base/buffer.h"

namespace headrace::cpu {
namespace {

struct Options {
  std::string unit = "auto";
  int megabytes = 64;
  int repeats = 5;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Median time of a few calls, after one to warm up.
template <typename F>
double median_seconds(int repeats, const F& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = cpu_seconds();
    work();
    times.push_back(cpu_seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

// The weights of one row: panels of `num_inputs` filled with a byte that makes every factor finite.
struct Panels {
  Buffer memory;
  size_t panel_bytes;
  int64_t num_panels;
};

constexpr int64_t kInputs = 1536;

Panels make_panels(Layout layout, size_t num_bytes) {
  Panels panels;
  panels.panel_bytes = panel_bytes(layout, kInputs);
  panels.num_panels = static_cast<int64_t>(num_bytes / panels.panel_bytes);
  panels.memory =
      Buffer::allocate(panels.panel_bytes * static_cast<size_t>(panels.num_panels)).value();
  std::fill(panels.memory.data(), panels.memory.data() + panels.memory.size(), std::byte{0x22});
  return panels;
}

// Sum over K of the first output, from the unpack row, for the check.
double expected_sum(const KernelSet& kernels, Layout layout, const Panels& panels, const float* x) {
  double sum = 0;
  std::vector<float> values(static_cast<size_t>(kSliceInputs) * kPanel);
  for (int64_t first = 0; first < kInputs; first += kSliceInputs) {
    kernels.unpack[static_cast<size_t>(layout)]->function.unpack(
        {reinterpret_cast<const uint8_t*>(panels.memory.data()), kInputs, first, kSliceInputs,
         values.data()});
    for (int64_t k = 0; k < kSliceInputs; ++k) {
      sum += double{x[first + k]} * double{values[static_cast<size_t>(k) * kPanel]};
    }
  }
  return sum;
}

void bench_row(const Options& options, const KernelUnit& unit, const KernelSet& kernels,
               Layout layout, int64_t num_rows) {
  const KernelRow& row = kernels.matmul[static_cast<size_t>(layout)].for_rows(num_rows);
  const Panels panels = make_panels(layout, static_cast<size_t>(options.megabytes) << 20);
  const int64_t group = num_rows == 1 ? 64 : 8;
  std::vector<float> x(static_cast<size_t>(num_rows * kInputs), 0.5f);
  Buffer sums = Buffer::allocate(static_cast<size_t>(num_rows * group * kPanel) * 4).value();
  Buffer scratch = Buffer::allocate(kMatmulScratchFloats * sizeof(float)).value();
  // M = 64 needs fewer panels for a steady figure.
  const int64_t num_panels =
      num_rows == 1 ? panels.num_panels : std::min<int64_t>(panels.num_panels, 128);
  const double seconds = median_seconds(options.repeats, [&] {
    for (int64_t first = 0; first < num_panels; first += group) {
      row.function.matmul({reinterpret_cast<const uint8_t*>(panels.memory.data()),
                           panels.panel_bytes, kInputs, x.data(), kInputs, num_rows, first,
                           std::min(group, num_panels - first), sums.as<float>().data(),
                           group * kPanel, scratch.as<float>().data()});
    }
  });
  const double expected = expected_sum(kernels, layout, panels, x.data());
  const double found = double{sums.as<float>()[0]};
  CHECK(std::fabs(found - expected) <= 1e-4 * std::fabs(expected) + 1e-6, "{}: {} instead of {}",
        row.name, found, expected);
  const double bytes = static_cast<double>(num_panels) * static_cast<double>(panels.panel_bytes);
  const double flops = 2.0 * static_cast<double>(num_panels * kPanel * kInputs * num_rows);
  fmt::print(
      "{{\"unit\": \"{}\", \"row\": \"{}\", \"m\": {}, \"gb_s\": {:.1f}, \"gflop_s\": {:.1f}}}\n",
      unit.name, row.name, num_rows, bytes / seconds / 1e9, flops / seconds / 1e9);
  std::fflush(stdout);
}

// The limits, from the kernels themselves: streaming bf16-free words through the f32 row needs one
// load and one FMA per 64 bytes (bandwidth); a small f32 matrix with many rows stays in cache
// (FMA).
void bench_limits(const Options& options) {
  Buffer memory = Buffer::allocate(size_t{256} << 20).value();
  const auto words = memory.as<uint64_t>();
  std::fill(words.begin(), words.end(), 1);
  uint64_t total = 0;
  const double seconds = median_seconds(options.repeats, [&] {
    uint64_t lanes[8] = {};
    for (size_t i = 0; i < words.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) lanes[j] += words[i + j];
    }
    for (const uint64_t lane : lanes) total += lane;
  });
  CHECK(total == words.size() * static_cast<uint64_t>(options.repeats + 1), "{}", total);
  fmt::print("{{\"limit\": \"read\", \"gb_s\": {:.1f}}}\n",
             static_cast<double>(memory.size()) / seconds / 1e9);
}

void bench_fma_peak(const Options& options, const KernelSet& kernels) {
  constexpr int64_t kSmall = 256, kRows = 48;
  const KernelRow& row = kernels.matmul[static_cast<size_t>(Layout::kF32)].for_rows(kRows);
  Buffer weights = Buffer::allocate(2 * panel_bytes(Layout::kF32, kSmall)).value();
  std::vector<float> x(kRows * kSmall, 1.0f);
  Buffer sums = Buffer::allocate(kRows * 2 * kPanel * 4).value();
  Buffer scratch = Buffer::allocate(kMatmulScratchFloats * sizeof(float)).value();
  constexpr int kCalls = 2000;
  const double seconds = median_seconds(options.repeats, [&] {
    for (int i = 0; i < kCalls; ++i) {
      row.function.matmul({reinterpret_cast<const uint8_t*>(weights.data()),
                           panel_bytes(Layout::kF32, kSmall), kSmall, x.data(), kSmall, kRows, 0, 2,
                           sums.as<float>().data(), 2 * kPanel, scratch.as<float>().data()});
    }
  });
  const double flops = 2.0 * kCalls * kRows * 2 * kPanel * kSmall;
  fmt::print("{{\"limit\": \"fma tile in cache\", \"gflop_s\": {:.1f}}}\n", flops / seconds / 1e9);
}

int run(const Options& options) {
  const uint32_t available = detect_isa();
  const auto unit = select_unit(options.unit, available);
  if (!unit.ok()) {
    fmt::print(stderr, "{}\n", unit.error().to_string());
    return 1;
  }
  const KernelSet kernels = select_kernels(**unit, available);
  bench_limits(options);
  bench_fma_peak(options, kernels);
  for (const int64_t num_rows : {1, 8, 64}) {
    for (int layout = 0; layout < kNumLayouts; ++layout) {
      bench_row(options, **unit, kernels, static_cast<Layout>(layout), num_rows);
    }
  }
  return 0;
}

}  // namespace
}  // namespace headrace::cpu

int main(int argc, char** argv) {
  headrace::cpu::Options options;
  CLI::App app{"Speed of each matmul kernel beside the machine's limits"};
  app.add_option("--unit,--isa", options.unit, "kernel unit, as for headrace --isa");
  app.add_option("--megabytes", options.megabytes, "packed bytes of each weight")
      ->check(CLI::Range(1, 4096));
  app.add_option("--repeats", options.repeats, "timed calls; the median counts")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  return headrace::cpu::run(options);
}
