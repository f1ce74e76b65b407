#include "backend/cpu/streams.h"

#include <array>
#include <cmath>

#include "backend/cpu/matmul.h"
#include "backend/cpu/norm.h"
#include "backend/device_access.h"

namespace headrace::cpu {
namespace {

constexpr double kLeastSquare = 1e-5;  // mean square that a stream is levelled by, at least

using Numbers = std::array<float, kMaxStreams>;

// One row in all streams, the residual one first.
struct Row {
  std::array<float*, kMaxStreams> at;
  size_t count;
  int64_t width;
};

Row row_of(const StreamArgs& args, int64_t row) {
  Row found{{}, static_cast<size_t>(args.num_streams), args.width};
  found.at[0] = raw(args.hidden) + row * args.width;
  for (size_t i = 1; i < found.count; ++i) {
    const auto before = static_cast<int64_t>(i) - 1;
    found.at[i] = raw(args.streams) + before * args.stream_stride + row * args.width;
  }
  return found;
}

Numbers modes_of(const StreamArgs& args, int64_t row) {
  Numbers modes{};
  for (int p = 0; p < args.num_streams; ++p) {
    const float routed = raw(args.routed)[row * args.num_streams + p];
    modes[static_cast<size_t>(p)] = static_cast<float>(std::tanh(double{routed}));
  }
  return modes;
}

// Coefficient `idx`: a row of coefs times the modes.
float coefficient(const StreamArgs& args, size_t idx, const Numbers& modes) {
  const auto count = static_cast<size_t>(args.num_streams);
  const float* row = raw(args.coefs) + idx * count;
  float sum = 0;
  for (size_t p = 0; p < count; ++p) sum += row[p] * modes[p];
  return sum;
}

void predict(const StreamArgs& args, int64_t row) {
  const Row rows = row_of(args, row);
  const Numbers modes = modes_of(args, row);
  std::array<Numbers, kMaxStreams> factors{};
  for (size_t j = 0; j < rows.count; ++j) {
    for (size_t i = 0; i < rows.count; ++i) {
      factors[j][i] = coefficient(args, j * rows.count + i, modes);
    }
  }
  for (int64_t n = 0; n < rows.width; ++n) {
    Numbers before{};
    for (size_t i = 0; i < rows.count; ++i) before[i] = rows.at[i][n];
    for (size_t j = 0; j < rows.count; ++j) {
      float sum = 0;
      for (size_t i = 0; i < rows.count; ++i) sum += factors[j][i] * before[i];
      rows.at[j][n] = before[j] + sum;
    }
  }
}

void correct(const StreamArgs& args, int64_t row) {
  const Row rows = row_of(args, row);
  const Numbers modes = modes_of(args, row);
  Numbers factors{};
  for (size_t j = 0; j < rows.count; ++j) factors[j] = coefficient(args, j, modes) + 1;
  const float* activated = raw(args.activated) + row * rows.width;
  const float* scale = raw(args.scale);
  float* scaled = raw(args.scaled) + row * rows.width;
  for (int64_t n = 0; n < rows.width; ++n) {
    const float innovation = activated[n] - rows.at[0][n];
    for (size_t j = 0; j < rows.count; ++j) rows.at[j][n] += innovation * factors[j];
    scaled[n] = scale == nullptr ? rows.at[0][n] : rows.at[0][n] * scale[n];
  }
}

double mean_square(const float* row, int64_t width) {
  double sum = 0;
  for (int64_t n = 0; n < width; ++n) sum += double{row[n]} * row[n];
  return sum / static_cast<double>(width);
}

// All streams as large as the residual one.
void level(const StreamArgs& args, int64_t row) {
  const Row rows = row_of(args, row);
  const double target = mean_square(rows.at[0], rows.width);
  for (size_t i = 1; i < rows.count; ++i) {
    const double own = std::max(mean_square(rows.at[i], rows.width), kLeastSquare);
    const auto factor = static_cast<float>(std::sqrt(target) / std::sqrt(own));
    for (int64_t n = 0; n < rows.width; ++n) rows.at[i][n] *= factor;
  }
}

void average(const StreamArgs& args, int64_t row) {
  level(args, row);
  const Row rows = row_of(args, row);
  for (int64_t n = 0; n < rows.width; ++n) {
    float sum = rows.at[0][n];
    for (size_t i = 1; i < rows.count; ++i) sum += rows.at[i][n];
    rows.at[0][n] = sum / static_cast<float>(rows.count);
  }
}

void spread(const StreamArgs& args, int64_t row) {
  const Row rows = row_of(args, row);
  const float* activated = raw(args.activated) + row * rows.width;
  for (size_t i = 1; i < rows.count; ++i) {
    for (int64_t n = 0; n < rows.width; ++n) rows.at[i][n] += activated[n];
  }
}

void mix(const StreamArgs& args, int64_t row) {
  switch (args.mix) {
    case StreamMix::kLevel:
      return level(args, row);
    case StreamMix::kPredict:
      return predict(args, row);
    case StreamMix::kCorrect:
      return correct(args, row);
    case StreamMix::kSpread:
      return spread(args, row);
    case StreamMix::kAverage:
      return average(args, row);
  }
}

// What is above the cutoff, less the cutoff. NaN stays.
void cut_off(float* gate, const SparseGateArgs& args) {
  const auto width = static_cast<double>(args.width);
  double sum = 0, squares = 0;
  for (int64_t n = 0; n < args.width; ++n) sum += double{gate[n]};
  const double mean = sum / width;
  for (int64_t n = 0; n < args.width; ++n) squares += (gate[n] - mean) * (gate[n] - mean);
  const auto cutoff = static_cast<float>(mean + args.deviations * std::sqrt(squares / width));
  for (int64_t n = 0; n < args.width; ++n) gate[n] = gate[n] < cutoff ? 0.0f : gate[n] - cutoff;
}

}  // namespace

void run_mix_streams(const CpuContext& context, const StreamArgs& args) {
  const RowItems items(args.num_rows);
  context.team.run(items.num_items(), [&](int64_t item, int /*member*/) {
    for (int64_t row = items.first(item); row < items.end(item); ++row) mix(args, row);
  });
}

void run_sparse_gate(const CpuContext& context, const SparseGateArgs& args) {
  const RowItems items(args.num_rows);
  context.team.run(items.num_items(), [&](int64_t item, int /*member*/) {
    for (int64_t row = items.first(item); row < items.end(item); ++row) {
      float* const values = raw(args.gate) + row * args.width;
      cut_off(values, args);
      GateArgs gate{};
      gate.gate = values;
      gate.up = raw(args.up) + row * args.width;
      gate.out = raw(args.out) + row * args.width;
      gate.gate_stride = gate.up_stride = gate.out_stride = gate.num_outputs = args.width;
      gate.num_rows = 1;
      gate.kind = gate_form(args.activation).kind;
      context.kernels.gate->function.gate(gate);
    }
  });
}

}  // namespace headrace::cpu
