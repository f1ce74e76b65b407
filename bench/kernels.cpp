// bench_kernels [--isa NAME] [--layout NAME] [--rows M] [--activations exact|fast] [--inputs K]
//               [--megabytes N] [--repeats N] [--json]
//
// Each matmul kernel on one thread: GB/s of packed weights and TFLOP/s (2 M N K per call, whatever
// the kernel does for it), beside the read bandwidth of that working set and the peak of the
// kernel's arithmetic, which the same run measured. M = 1, 2, 4, 16, 64, 512; weights warm (they
// fit in L2) and cold (larger than the caches, as far as a repeat stays short). Time is the
// thread's processor time, which other processes disturb less than the wall clock; medians.
//
// Activations are fresh random numbers in every repeat and outputs are poisoned with NaN before.
// After each repeat every output must be a number, and some must equal the product in double
// precision, within what the rounding of activations allows; else the program stops.

#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/linear_tiles.h"
#include "backend/cpu/team/topology.h"
#include "backend/cpu/verify/samples.h"
#include "backend/cpu/workspace.h"
#include "bench/limits.h"
#include "bench/op_rates.h"
#include "bench/synth.h"
#include "checkpoint/weight_rows.h"

namespace headrace::cpu {
namespace {

struct Options {
  std::string unit = "auto";
  std::string layout;
  std::string activations;
  int64_t rows = 0;
  int64_t inputs = 2048;
  int megabytes = 64;
  int repeats = 5;
  bool json = false;
};

constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 512};
constexpr size_t kWarmBytes = size_t{384} << 10;
constexpr double kRepeatOperations = 1e10;  // of a cold repeat, at most about
constexpr double kRepeatSeconds = 0.002;    // of a warm one, at least

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A random weight, packed, with the values that it stands for.
struct BenchWeight {
  std::vector<std::byte> blocks;
  std::unique_ptr<SampleWeight> sample;  // of formats that are no tensor of blocks
  WeightView view;
  std::unique_ptr<CpuWeight> packed;

  const Segment& segment() const { return packed->segments()[0]; }
  std::vector<float> output(int64_t n) const {
    std::vector<float> values(static_cast<size_t>(view.num_inputs));
    dequantise_rows(view, n, 1, values.data());
    return values;
  }
};

const DTypeRow& dtype_named(std::string_view name) {
  for (const DTypeRow& row : dtype_rows()) {
    if (row.name == name) return row;
  }
  CHECK(false, "no dtype {}", name);
}

// Quantised safetensors: some rows as they have them, again and again.
Result<BenchWeight> make_repeated(const Options& options, Layout layout, const KernelSet& kernels,
                                  Team& team) {
  constexpr int64_t kSampleRows = 256;
  Random random(std::random_device{}());
  BenchWeight weight;
  weight.sample =
      sample_weight(layout, WeightSample::kTypical, kSampleRows, options.inputs, random);
  weight.view = weight.sample->view;
  const size_t row_bytes = panel_bytes(layout, options.inputs) / kPanel;
  const size_t wanted = (static_cast<size_t>(options.megabytes) << 20) / row_bytes;
  weight.view.num_outputs = static_cast<int64_t>(std::max(wanted / kPanel, size_t{8}) * kPanel);
  for (int64_t n = 0; n < weight.view.num_outputs; ++n) {
    weight.view.row_order.push_back(static_cast<int32_t>(n % kSampleRows));
  }
  weight.packed = TRY(pack_weight({&weight.view, 1}, WeightRole::kLinear, kernels, team));
  return weight;
}

Result<BenchWeight> make_weight(const Options& options, Layout layout, const KernelSet& kernels,
                                Team& team) {
  if (is_of_groups(layout_info(layout)) || has_float_codes(layout_info(layout))) {
    return make_repeated(options, layout, kernels, team);
  }
  const DTypeRow& dtype = dtype_named(layout_info(layout).format);
  const size_t row_bytes =
      static_cast<size_t>(options.inputs) / dtype.block_elements * dtype.block_bytes;
  const size_t wanted = (static_cast<size_t>(options.megabytes) << 20) / row_bytes;
  BenchWeight weight;
  weight.view.name = dtype.name;
  weight.view.num_outputs = static_cast<int64_t>(std::max(wanted / kPanel, size_t{8}) * kPanel);
  weight.view.num_inputs = options.inputs;
  weight.blocks.resize(static_cast<size_t>(weight.view.num_outputs) * row_bytes);
  uint64_t state = std::random_device{}() | 1;
  fill_random_blocks(dtype.dtype, options.inputs, &state, weight.blocks);
  TensorView& values = weight.view.values;
  values.data = weight.blocks.data();
  values.dtype = dtype.dtype;
  values.rank = 2;
  values.shape = {weight.view.num_outputs, options.inputs};
  values.num_bytes = weight.blocks.size();
  weight.packed = TRY(pack_weight({&weight.view, 1}, WeightRole::kLinear, kernels, team));
  return weight;
}

// Rows of x, as numbers and in the form that a kernel reads.
class Activations {
 public:
  Activations(const KernelSet& kernels, ActivationType type, int64_t num_rows, int64_t num_inputs)
      : kernels_(kernels),
        type_(type),
        num_rows_(num_rows),
        num_inputs_(num_inputs),
        x_(static_cast<size_t>(num_rows * num_inputs)) {
    const int64_t slices = (num_inputs + kSliceInputs - 1) / kSliceInputs;
    const int64_t num_bytes = slices * num_rows * activation_record_bytes(type);
    records_ = Buffer::allocate(static_cast<size_t>(num_bytes)).value();
  }

  void refresh(std::mt19937* random) {
    for (float& value : x_) {
      // Of many sizes: a power of two times a number in [-1, 1).
      const auto bits = static_cast<int32_t>((*random)());
      value = static_cast<float>(bits & ~7) * (bits % 8 == 0 ? 0x1p-30f : 0x1p-32f);
    }
    if (type_ == ActivationType::kF32) return;
    const KernelRow& quantise = is_of_codes(type_) ? *kernels_.quantise : *kernels_.quantise_dense;
    quantise.function.quantise(
        {x_.data(), num_rows_, num_inputs_, records_.as<uint8_t>().data(), stride()});
  }

  // Makes args read rows from `first` on.
  void point_at(int64_t first, int64_t count, MatmulArgs* args) const {
    args->num_rows = count;
    args->x_stride = stride();
    if (type_ == ActivationType::kF32) {
      args->x = x_.data() + first * num_inputs_;
      return;
    }
    const StoredRows rows = stored_rows(type_, first, count, num_rows_, stride());
    args->x = records_.as<uint8_t>().data() + rows.offset;
    args->beside = rows.beside;
  }
  int64_t stride() const {
    return type_ == ActivationType::kF32 ? num_inputs_
                                         : activation_stride(type_, num_rows_, num_inputs_);
  }
  const float* row(int64_t m) const { return x_.data() + m * num_inputs_; }

  // Largest distances of what the kernel multiplies from the numbers, per unit of the largest of a
  // block's or segment's inputs: of activations half a step; of weights, where they are rounded,
  // more.
  struct Rounding {
    double activations, weights;
    bool by_segments;
  };
  Rounding rounding() const {
    constexpr Rounding kRounding[] = {{0, 0, false},         {0.5 / 127, 0, false},
                                      {0x1p-14, 0, false},   {0x1p-8, 0, false},
                                      {0x1p-16, 0, false},   {0x1p-15, 0x1p-10, true},
                                      {0x1p-8, 0x1p-8, true}};  // by ActivationType
    static_assert(std::size(kRounding) == static_cast<size_t>(ActivationType::kBF16Codes) + 1);
    return kRounding[static_cast<size_t>(type_)];
  }

 private:
  const KernelSet& kernels_;
  ActivationType type_;
  int64_t num_rows_, num_inputs_;
  std::vector<float> x_;
  Buffer records_;
};

// One product in double precision, and how far the kernel's may lie from it.
struct Expected {
  double value = 0, tolerance = 0;
};

Expected expect(const Activations& activations, int64_t m, const std::vector<float>& weights) {
  const float* x = activations.row(m);
  const auto num_inputs = static_cast<int64_t>(weights.size());
  Expected expected;
  double magnitudes = 0;
  const Activations::Rounding rounding = activations.rounding();
  for (int64_t first = 0, end; first < num_inputs; first = end) {
    end = rounding.by_segments ? first + fixed_segment_inputs(first, num_inputs)
                               : std::min<int64_t>(first + kActivationBlock, num_inputs);
    double largest = 0, block_weights = 0, largest_weight = 0, block_activations = 0;
    for (int64_t k = first; k < end; ++k) {
      const double w = weights[static_cast<size_t>(k)];
      expected.value += w * x[k];
      magnitudes += std::fabs(w * x[k]);
      block_weights += std::fabs(w);
      largest_weight = std::max(largest_weight, std::fabs(w));
      block_activations += std::fabs(double{x[k]});
      largest = std::max(largest, std::fabs(double{x[k]}));
    }
    expected.tolerance += largest * rounding.activations * block_weights +
                          largest_weight * rounding.weights * block_activations;
  }
  // Float sums: one rounding per input at most, and slices.
  expected.tolerance += magnitudes * static_cast<double>(num_inputs) * 0x1p-24;
  return expected;
}

// One kernel on one set of panels.
class Case {
 public:
  Case(const BenchWeight& weight, const KernelSet& kernels, int64_t num_rows, int64_t num_panels)
      : weight_(weight),
        row_(weight.segment().matmul.for_rows(num_rows)),
        num_rows_(num_rows),
        num_panels_(num_panels),
        activations_(kernels, row_.activation, num_rows, weight.view.num_inputs) {
    sums_ = Buffer::allocate(static_cast<size_t>(num_rows * num_panels * kPanel) * 4).value();
    scratch_ = Buffer::allocate(kMatmulScratchFloats * sizeof(float)).value();
  }

  const KernelRow& row() const { return row_; }
  double bytes() const {
    return static_cast<double>(num_panels_) * static_cast<double>(weight_.segment().panel_bytes);
  }
  double operations() const {
    return 2.0 * static_cast<double>(num_panels_ * kPanel * weight_.view.num_inputs * num_rows_);
  }

  // Median seconds of one pass over all panels.
  double measure(int repeats) {
    std::vector<double> times;
    int64_t passes = 1;
    for (int i = -1; i < repeats; ++i) {  // the first to warm up
      activations_.refresh(&random_);
      const auto sums = sums_.as<float>();
      std::fill(sums.begin(), sums.end(), std::numeric_limits<float>::quiet_NaN());
      const double start = cpu_seconds();
      for (int64_t pass = 0; pass < passes; ++pass) multiply();
      const double seconds = (cpu_seconds() - start) / static_cast<double>(passes);
      check();
      if (i >= 0) times.push_back(seconds);
      if (i < 0) passes = static_cast<int64_t>(std::ceil(kRepeatSeconds / std::max(seconds, 1e-9)));
    }
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[static_cast<size_t>(repeats / 2)];
  }

 private:
  // In tiles as the back end cuts them: rows, then as many panels as its scratch holds.
  void multiply() {
    const Segment& segment = weight_.segment();
    const TileLimits limits = TileLimits::of(segment.matmul, num_rows_);
    const int64_t tile_rows = std::min(num_rows_, limits.most_rows);
    const int64_t tile_panels = std::min<int64_t>(limits.most_floats / (tile_rows * kPanel), 32);
    for (int64_t panel = 0; panel < num_panels_; panel += tile_panels) {
      const int64_t count = std::min(tile_panels, num_panels_ - panel);
      for (int64_t m = 0; m < num_rows_; m += tile_rows) {
        MatmulArgs args{};
        args.weight = segment.data;
        args.panel_bytes = segment.panel_bytes;
        args.num_inputs = weight_.view.num_inputs;
        activations_.point_at(m, std::min(tile_rows, num_rows_ - m), &args);
        args.first_panel = panel;
        args.num_panels = count;
        args.sums = sums_.as<float>().data() + m * num_panels_ * kPanel + panel * kPanel;
        args.sums_stride = num_panels_ * kPanel;
        args.scratch = scratch_.as<float>().data();
        row_.function.matmul(args);
      }
    }
  }

  void check() {
    const int64_t num_outputs = num_panels_ * kPanel;
    for (const float sum : sums_.as<float>().first(static_cast<size_t>(num_rows_ * num_outputs))) {
      CHECK(std::isfinite(sum), "{}: an output is {}", row_.name, sum);
    }
    for (int i = 0; i < 4; ++i) {
      const int64_t n = i == 0 ? num_outputs - 1 : static_cast<int64_t>(random_()) % num_outputs;
      const int64_t m = i == 0 ? num_rows_ - 1 : static_cast<int64_t>(random_()) % num_rows_;
      const Expected expected = expect(activations_, m, weight_.output(n));
      const double found = double{sums_.as<float>()[static_cast<size_t>(m * num_outputs + n)]};
      CHECK(std::fabs(found - expected.value) <= expected.tolerance,
            "{}: row {}, output {} is {} instead of {} (within {})", row_.name, m, n, found,
            expected.value, expected.tolerance);
    }
  }

  const BenchWeight& weight_;
  const KernelRow& row_;
  int64_t num_rows_, num_panels_;
  Activations activations_;
  Buffer sums_, scratch_;
  std::mt19937 random_{std::random_device{}()};
};

struct Limits {
  std::vector<PeakRate> peaks;
  double warm_read, cold_read;  // bytes per second of one thread

  // Peak of a row's arithmetic for one thread.
  double peak(const KernelRow& row) const {
    const PeakKind kind = row.activation == ActivationType::kF32 ? PeakKind::kF32
                          : is_integer(row.activation)           ? PeakKind::kInt8
                                                                 : PeakKind::kBF16;
    return operation_rate(peaks, kind, num_terms(row.activation), row.isa);
  }
};

Result<Limits> measure_limits(const Options& options) {
  const size_t cold = static_cast<size_t>(options.megabytes) << 20;
  return Limits{peak_rates(1), TRY(read_bandwidth(kWarmBytes, 1)), TRY(read_bandwidth(cold, 1))};
}

void print_case(const Options& options, Case& measured, int64_t num_rows, bool warm,
                const Limits& limits) {
  const double seconds = measured.measure(options.repeats);
  const KernelRow& row = measured.row();
  const double bandwidth = measured.bytes() / seconds, rate = measured.operations() / seconds;
  const double read = warm ? limits.warm_read : limits.cold_read, peak = limits.peak(row);
  fmt::print(fmt::runtime(options.json
                              ? "{{\"kernel\": \"{}\", \"x\": \"{}\", \"m\": {}, \"weights\": "
                                "\"{}\", \"gb_s\": {:.1f}, \"read_share\": {:.2f}, \"tflop_s\": "
                                "{:.3f}, \"peak_share\": {:.2f}}}\n"
                              : "{:<34} {:<10} {:>4} {:<5} {:>6.1f} {:>6.2f} {:>9.3f} {:>6.2f}\n"),
             row.name, activation_name(row.activation), num_rows, warm ? "warm" : "cold",
             bandwidth / 1e9, bandwidth / read, rate / 1e12, peak > 0 ? rate / peak : 0.0);
  std::fflush(stdout);
}

Status bench_layout(const Options& options, Layout layout, const KernelSet& kernels, Team& team,
                    const Limits& limits) {
  const BenchWeight weight = TRY(make_weight(options, layout, kernels, team));
  const Segment& segment = weight.segment();
  const auto warm_panels = std::clamp<int64_t>(
      static_cast<int64_t>(kWarmBytes / segment.panel_bytes), 4, segment.num_panels);
  for (const int64_t num_rows : kRows) {
    if (options.rows > 0 && options.rows != num_rows) continue;
    Case warm(weight, kernels, num_rows, warm_panels);
    print_case(options, warm, num_rows, true, limits);
    const double panel_operations =
        2.0 * static_cast<double>(kPanel * weight.view.num_inputs * num_rows);
    const auto most = static_cast<int64_t>(kRepeatOperations / panel_operations);
    Case cold(weight, kernels, num_rows, std::clamp(most, warm_panels, segment.num_panels));
    print_case(options, cold, num_rows, false, limits);
  }
  return {};
}

Status run(const Options& options) {
  const uint32_t available = detect_isa();
  const KernelUnit* unit = TRY(select_unit(options.unit, available));
  const Limits limits = TRY(measure_limits(options));
  fmt::print(stderr, "reads {:.1f} GB/s warm, {:.1f} cold; peaks of one thread, T/s:",
             limits.warm_read / 1e9, limits.cold_read / 1e9);
  for (const PeakRate& peak : limits.peaks) {
    fmt::print(stderr, " {} {:.3f}", peak.name, peak.operations.one_thread / 1e12);
  }
  fmt::print(stderr, "\n");
  if (!options.json) {
    fmt::print("{:<34} {:<10} {:>4} {:<5} {:>6} {:>6} {:>9} {:>6}\n", "kernel", "x", "M", "set",
               "GB/s", "share", "TFLOP/s", "share");
  }
  Team team(static_cast<int>(usable_cores().size()), usable_cores());
  int num_layouts = 0;
  for (const ActivationType type : {ActivationType::kInt16, ActivationType::kInt8}) {
    const bool exact = type == ActivationType::kInt16;
    if (!options.activations.empty() && exact != (options.activations == "exact")) continue;
    const KernelSet kernels = select_kernels(*unit, available, type);
    for (const LayoutInfo& info : kLayouts) {
      if (!options.layout.empty() && options.layout != info.name) continue;
      const MatmulRows& rows = kernels.matmul[static_cast<size_t>(info.layout)];
      // Dense layouts are the same in both arithmetics.
      const bool once = rows.activation() == ActivationType::kF32;
      ++num_layouts;
      if (once && !exact && options.activations.empty()) continue;
      TRY(bench_layout(options, info.layout, kernels, team, limits));
    }
  }
  if (num_layouts > 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "there is no layout '{}'", options.layout);
}

}  // namespace
}  // namespace headrace::cpu

int main(int argc, char** argv) {
  headrace::cpu::Options options;
  CLI::App app{"Speed of each matmul kernel beside the machine's limits"};
  app.add_option("--unit,--isa", options.unit, "kernel unit, as for headrace --isa");
  app.add_option("--layout", options.layout, "only this layout, such as q4_0x16");
  app.add_option("--activations", options.activations, "only this arithmetic")
      ->check(CLI::IsMember({"exact", "fast"}));
  app.add_option("--rows", options.rows, "only this M")
      ->check(CLI::IsMember({1, 2, 4, 8, 16, 64, 512}));
  app.add_option("--inputs", options.inputs, "K: a multiple of 256")
      ->check([](const std::string& text) {
        const long value = std::strtol(text.c_str(), nullptr, 10);
        const bool valid = value >= 256 && value <= 65536 && value % 256 == 0;
        return valid ? std::string() : "K must be a multiple of 256 in 256..65536, not " + text;
      });
  app.add_option("--megabytes", options.megabytes, "file bytes of a cold weight")
      ->check(CLI::Range(4, 4096));
  app.add_option("--repeats", options.repeats, "timed calls; the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--json", options.json, "one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const headrace::Status status = headrace::cpu::run(options);
  if (!status.ok()) fmt::print(stderr, "bench_kernels: {}\n", status.error().to_string());
  return status.ok() ? 0 : 1;
}
