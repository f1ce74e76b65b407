// Ops of layers with a state: against float64, and a sequence in one span against the same sequence
// in chunks, beside others and on several threads, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernel_cases.h"

namespace headrace {
namespace {

using Floats = std::vector<float>;

// The state of one sequence in blocks of a plane each, as a cache keeps it: block of position p at
// entry p / 16, and one more for guesses. Blocks begin as NaN: nobody reads what was not written.
class StateSlab {
 public:
  StateSlab(int num_planes, int num_heads, int width, int64_t num_tokens)
      : plane_floats_(static_cast<size_t>(num_heads) * static_cast<size_t>(width)),
        plane_{"state", KvType::kF32, num_heads, width},
        num_planes_(num_planes) {
    const int64_t num_blocks = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    memory_.assign(static_cast<size_t>(num_blocks + 1) * block_floats(), std::nanf(""));
    ahead_ = static_cast<int32_t>(num_blocks);
    for (int64_t i = 0; i < num_blocks; ++i) table_.push_back(static_cast<int32_t>(i));
    // Not in order, so that a block's number and its entry differ.
    std::reverse(table_.begin(), table_.end());
    tables_ = {table_.data()};
  }

  const int32_t* const* tables() const { return tables_.data(); }
  // A span of a step of its own, whose last rows are guesses.
  Span span(int64_t first, int64_t count, int64_t num_guesses = 0) const {
    Span span{0, static_cast<int32_t>(count), first, tables()};
    span.num_draft = static_cast<int32_t>(num_guesses);
    if (num_guesses > 0) span.states_ahead = &ahead_;
    return span;
  }
  // All guesses were right, up to so many tokens.
  void take_ahead(int64_t num_tokens) {
    std::swap(table_[size_t((num_tokens - 1) / kBlockTokens)], ahead_);
  }
  std::vector<KvPlaneView> planes() {
    std::vector<KvPlaneView> views;
    for (int i = 0; i < num_planes_; ++i) {
      std::byte* base = reinterpret_cast<std::byte*>(memory_.data() + plane_floats_ * size_t(i));
      views.push_back({plane_, on_device(base), block_floats() * sizeof(float), 0});
    }
    return views;
  }
  // After the last of so many tokens.
  Floats at(int64_t num_tokens) const {
    const auto block = static_cast<size_t>(table_[size_t((num_tokens - 1) / kBlockTokens)]);
    const auto first = memory_.begin() + ptrdiff_t(block * block_floats());
    return {first, first + ptrdiff_t(block_floats())};
  }

 private:
  size_t block_floats() const { return plane_floats_ * static_cast<size_t>(num_planes_); }

  size_t plane_floats_;
  KvPlane plane_;
  int num_planes_;
  Floats memory_;
  std::vector<int32_t> table_;
  std::vector<const int32_t*> tables_;
  int32_t ahead_ = -1;
};

// A sequence in steps of three rows and up to two guesses, of which every other time one is wrong:
// the outputs. step: computes a span.
template <typename Step>
Floats run_with_guesses(int64_t num_tokens, int64_t width, StateSlab& slab, const Step& step) {
  Floats out;
  for (int64_t first = 0, i = 0; first < num_tokens; ++i) {
    const int64_t count = std::min<int64_t>(3, num_tokens - first);
    const int64_t num_guesses = std::min<int64_t>(2, num_tokens - first - count);
    const Floats rows = step(slab.span(first, count + num_guesses, num_guesses));
    const bool are_right = num_guesses > 0 && i % 2 == 0;
    if (are_right) slab.take_ahead(first + count + num_guesses);
    const int64_t num_kept = are_right ? count + num_guesses : count;
    out.insert(out.end(), rows.begin(), rows.begin() + num_kept * width);
    first += num_kept;
  }
  return out;
}

Floats rows_of(const Floats& x, int64_t width, int64_t first, int64_t count) {
  return {x.begin() + first * width, x.begin() + (first + count) * width};
}

constexpr int64_t kChunks[] = {1, 2, 7, 16, 33, 150};

// ---- Convolution --------------------------------------------------------------------------------

struct ConvSetup {
  int64_t channels;
  int taps;
  bool silu, gates;
};
constexpr ConvSetup kConvSetups[] = {{37, 4, true, false}, {600, 3, false, true}};
constexpr int64_t kTokens = 150;

// A convolution and one sequence of its inputs: x | in gate | out gate in a row.
struct ConvCase {
  explicit ConvCase(const ConvSetup& of) : setup(of), stride(3 * of.channels + 5) {
    Random random(23);
    x = random_floats(static_cast<size_t>(kTokens * stride), random);
    weight = random_floats(static_cast<size_t>(of.taps * of.channels), random);
    bias = random_floats(static_cast<size_t>(of.channels), random);
  }

  double input(int64_t row, int64_t channel) const {
    if (row < 0) return 0;
    const double value = x[size_t(row * stride + channel)];
    return setup.gates ? value * x[size_t(row * stride + setup.channels + channel)] : value;
  }
  double expected(int64_t row, int64_t channel) const {
    double sum = bias[size_t(channel)];
    for (int64_t j = 0; j < setup.taps; ++j) {
      sum += double{weight[size_t(j * setup.channels + channel)]} *
             input(row - setup.taps + 1 + j, channel);
    }
    if (setup.silu) sum = sum / (1 + std::exp(-sum));
    return setup.gates ? sum * x[size_t(row * stride + 2 * setup.channels + channel)] : sum;
  }

  ConvSetup setup;
  int64_t stride;
  Floats x, weight, bias;
};

// One step: rows of a batch in spans of several sequences.
Floats convolve(Backend& backend, const ConvCase& test, const Floats& x, StateSlab& slab,
                const std::vector<Span>& spans) {
  const ConvSetup& setup = test.setup;
  CausalConvArgs args;
  args.row_stride = test.stride;
  args.num_rows = std::ssize(x) / test.stride;
  args.num_channels = setup.channels;
  args.num_taps = setup.taps;
  args.x = on_device(x.data());
  if (setup.gates) args.in_gate = args.x + setup.channels;
  if (setup.gates) args.out_gate = args.x + 2 * setup.channels;
  args.weight = on_device(test.weight.data());
  args.bias = on_device(test.bias.data());
  args.silu = setup.silu;
  args.state = slab.planes().front();
  args.step = backend.begin_step(spans);
  GuardedFloats out(static_cast<size_t>(args.num_rows * setup.channels));
  args.out = on_device(out.data());
  backend.causal_conv(args);
  EXPECT_TRUE(out.intact());
  return {out.values().begin(), out.values().end()};
}

Floats convolve_in_chunks(Backend& backend, const ConvCase& test, int64_t chunk, Floats* state) {
  StateSlab slab(1, test.setup.taps - 1, static_cast<int>(test.setup.channels), kTokens);
  Floats out;
  for (int64_t first = 0; first < kTokens; first += chunk) {
    const int64_t count = std::min(chunk, kTokens - first);
    const Span span{0, static_cast<int32_t>(count), first, slab.tables()};
    const Floats part =
        convolve(backend, test, rows_of(test.x, test.stride, first, count), slab, {span});
    out.insert(out.end(), part.begin(), part.end());
  }
  *state = slab.at(kTokens);
  return out;
}

TEST(CausalConv, IsTheSumOverTheLastPositions) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const ConvSetup& setup : kConvSetups) {
      SCOPED_TRACE(fmt::format("{} {} channels", isa, setup.channels));
      const ConvCase test(setup);
      Floats state;
      const Floats out = convolve_in_chunks(*backend, test, kTokens, &state);
      double worst = 0;
      for (int64_t i = 0; i < std::ssize(out); ++i) {
        const double expected = test.expected(i / setup.channels, i % setup.channels);
        worst = std::max(worst, std::fabs(expected - out[size_t(i)]) / (1 + std::fabs(expected)));
      }
      EXPECT_LT(worst, 3e-6);
      for (int64_t i = 0; i < std::ssize(state); ++i) {
        const int64_t row = kTokens - setup.taps + 1 + i / setup.channels;
        EXPECT_NEAR(state[size_t(i)], test.input(row, i % setup.channels), 2e-6);
      }
    }
  }
}

TEST(CausalConv, ChunksAndThreadsLeaveEveryBit) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1), threads = make_backend(isa, 3);
    for (const ConvSetup& setup : kConvSetups) {
      const ConvCase test(setup);
      Floats whole_state, state;
      const Floats whole = convolve_in_chunks(*backend, test, kTokens, &whole_state);
      for (const int64_t chunk : kChunks) {
        SCOPED_TRACE(fmt::format("{} {} channels in chunks of {}", isa, setup.channels, chunk));
        EXPECT_TRUE(same_bits(convolve_in_chunks(*threads, test, chunk, &state), whole));
        EXPECT_TRUE(same_bits(state, whole_state));
      }
    }
  }
}

TEST(CausalConv, WrongGuessesLeaveTheStateBeforeThem) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const ConvSetup& setup : kConvSetups) {
      const ConvCase test(setup);
      Floats state;
      const Floats whole = convolve_in_chunks(*backend, test, kTokens, &state);
      StateSlab slab(1, setup.taps - 1, static_cast<int>(setup.channels), kTokens);
      const auto step = [&](const Span& span) {
        const Floats x = rows_of(test.x, test.stride, span.first_position, span.num_rows);
        return convolve(*backend, test, x, slab, {span});
      };
      EXPECT_TRUE(same_bits(run_with_guesses(kTokens, setup.channels, slab, step), whole)) << isa;
      EXPECT_TRUE(same_bits(slab.at(kTokens), state)) << isa;
    }
  }
}

TEST(CausalConv, SequencesOfABatchDoNotMeet) {
  const ConvCase test(kConvSetups[0]);
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    Floats state;
    const Floats alone = convolve_in_chunks(*backend, test, kTokens, &state);
    const int channels = static_cast<int>(test.setup.channels);
    StateSlab slab(1, test.setup.taps - 1, channels, kTokens);
    StateSlab other(1, test.setup.taps - 1, channels, kTokens);
    // Tokens 0 to 89, then 90 to 149 between two others that begin.
    convolve(*backend, test, rows_of(test.x, test.stride, 0, 90), slab,
             {{0, 90, 0, slab.tables()}});
    Floats x = rows_of(test.x, test.stride, 3, 5);
    const Floats rest = rows_of(test.x, test.stride, 90, 60);
    x.insert(x.end(), rest.begin(), rest.end());
    // Tables of one step share a slab's memory: the other sequence has blocks of its own there.
    const std::vector<int32_t> begin = {1};
    const int32_t* tables[] = {begin.data()};
    const Floats out =
        convolve(*backend, test, x, slab, {{0, 5, 0, tables}, {5, 60, 90, slab.tables()}});
    EXPECT_TRUE(same_bits(rows_of(out, channels, 5, 60), rows_of(alone, channels, 90, 60))) << isa;
    const Floats begun = convolve(*backend, test, rows_of(test.x, test.stride, 3, 5), other,
                                  {{0, 5, 0, other.tables()}});
    EXPECT_TRUE(same_bits(rows_of(out, channels, 0, 5), begun)) << isa;
  }
}

// ---- Scan ---------------------------------------------------------------------------------------

struct ScanSetup {
  int heads, head_dim, groups, state_width;
  float least, most;  // of a time step
};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr ScanSetup kScanSetups[] = {{6, 20, 3, 9, 0, kInfinity}, {4, 16, 1, 16, 0.3f, 0.9f}};

struct ScanCase {
  explicit ScanCase(const ScanSetup& of)
      : setup(of),
        width(of.heads * of.head_dim),
        mixed_width(width + 2 * of.groups * of.state_width),
        stride(width + of.heads + 3) {
    Random random(29);
    mixed = random_floats(static_cast<size_t>(kTokens * mixed_width), random);
    projected = random_floats(static_cast<size_t>(kTokens * stride), random);
    for (float* value : {&projected[1], &projected[size_t(width)]}) *value = 30.0f;
    decay_rate = random_floats(static_cast<size_t>(of.heads), random);
    for (float& rate : decay_rate) rate = -std::fabs(rate);
    bias = random_floats(static_cast<size_t>(of.heads), random);
    skip = random_floats(static_cast<size_t>(of.heads), random);
    weight = random_floats(static_cast<size_t>(width), random);
  }

  // By the definition, in float64.
  std::vector<double> expected() const;

  ScanSetup setup;
  int64_t width, mixed_width, stride;
  Floats mixed, projected;  // x, b, c; gate and time step
  Floats decay_rate, bias, skip, weight;
};

constexpr double kEps = 1e-5;

// The scan of a head: y, [kTokens, head_dim].
std::vector<double> scanned(const ScanCase& test, int head) {
  const ScanSetup& setup = test.setup;
  const int group = head / (setup.heads / setup.groups);
  std::vector<double> y, state(size_t(setup.state_width * setup.head_dim));
  for (int64_t m = 0; m < kTokens; ++m) {
    const float* x = test.mixed.data() + m * test.mixed_width;
    const float* b = x + test.width + group * setup.state_width;
    const float* c = b + setup.groups * setup.state_width;
    const double raw = double{test.projected[size_t(m * test.stride + test.width + head)]} +
                       test.bias[size_t(head)];
    const double step =
        std::clamp(std::log1p(std::exp(raw)), double{setup.least}, double{setup.most});
    for (int i = 0; i < setup.head_dim; ++i) {
      const double own = x[head * setup.head_dim + i];
      double sum = test.skip[size_t(head)] * own;
      for (int n = 0; n < setup.state_width; ++n) {
        double& s = state[size_t(n * setup.head_dim + i)];
        s = s * std::exp(test.decay_rate[size_t(head)] * step) + step * own * b[n];
        sum += s * c[n];
      }
      y.push_back(sum);
    }
  }
  return y;
}

std::vector<double> ScanCase::expected() const {
  std::vector<double> out(size_t(kTokens * width));
  for (int head = 0; head < setup.heads; ++head) {
    const std::vector<double> y = scanned(*this, head);
    for (int64_t i = 0; i < std::ssize(y); ++i) {
      const int64_t m = i / setup.head_dim, at = head * setup.head_dim + i % setup.head_dim;
      const double gate = projected[size_t(m * stride + at)];
      out[size_t(m * width + at)] = y[size_t(i)] * gate / (1 + std::exp(-gate));
    }
  }
  const int64_t group_width = width / setup.groups;
  for (int64_t first = 0; first < std::ssize(out); first += group_width) {
    double squares = 0;
    for (int64_t i = 0; i < group_width; ++i) {
      squares += out[size_t(first + i)] * out[size_t(first + i)];
    }
    const double root = std::sqrt(squares / static_cast<double>(group_width) + kEps);
    for (int64_t i = 0; i < group_width; ++i) {
      out[size_t(first + i)] *= weight[size_t((first + i) % width)] / root;
    }
  }
  return out;
}

Floats scan_chunk(Backend& backend, const ScanCase& test, StateSlab& slab, const Span& span) {
  const ScanSetup& setup = test.setup;
  const int64_t first = span.first_position, count = span.num_rows;
  const std::vector<KvPlaneView> state = slab.planes();
  GuardedFloats out(static_cast<size_t>(count * test.width));
  ScanArgs args;
  args.mixed = on_device(test.mixed.data() + first * test.mixed_width);
  args.gate = on_device(test.projected.data() + first * test.stride);
  args.time_step = args.gate + test.width;
  args.row_stride = test.stride;
  args.num_rows = count;
  args.num_heads = setup.heads;
  args.head_dim = setup.head_dim;
  args.num_groups = setup.groups;
  args.state_width = setup.state_width;
  args.decay_rate = on_device(test.decay_rate.data());
  args.time_step_bias = on_device(test.bias.data());
  args.skip = on_device(test.skip.data());
  args.time_step_min = setup.least;
  args.time_step_max = setup.most;
  args.norm_weight = on_device(test.weight.data());
  args.norm_eps = static_cast<float>(kEps);
  args.state = state;
  args.step = backend.begin_step({&span, 1});
  args.out = on_device(out.data());
  backend.scan(args);
  EXPECT_TRUE(out.intact());
  return {out.values().begin(), out.values().end()};
}

Floats scan_in_chunks(Backend& backend, const ScanCase& test, int64_t chunk, Floats* state) {
  StateSlab slab(test.setup.heads, test.setup.state_width, test.setup.head_dim, kTokens);
  Floats out;
  for (int64_t first = 0; first < kTokens; first += chunk) {
    const Span span = slab.span(first, std::min(chunk, kTokens - first));
    const Floats part = scan_chunk(backend, test, slab, span);
    out.insert(out.end(), part.begin(), part.end());
  }
  *state = slab.at(kTokens);
  return out;
}

TEST(Scan, IsTheRecurrenceTheGateAndTheNormOfEachGroup) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const ScanSetup& setup : kScanSetups) {
      SCOPED_TRACE(fmt::format("{} {} heads", isa, setup.heads));
      const ScanCase test(setup);
      Floats state;
      const Floats out = scan_in_chunks(*backend, test, kTokens, &state);
      const std::vector<double> expected = test.expected();
      double worst = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        worst = std::max(worst, std::fabs(expected[i] - out[i]));
      }
      EXPECT_LT(worst, 2e-5);
      EXPECT_TRUE(std::all_of(state.begin(), state.end(), [](float s) { return s == s; }));
    }
  }
}

TEST(Scan, OneTokenAChunkAndAWholePromptGiveTheSameBits) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 1), threads = make_backend(isa, 3);
    for (const ScanSetup& setup : kScanSetups) {
      const ScanCase test(setup);
      Floats whole_state, state;
      const Floats whole = scan_in_chunks(*backend, test, kTokens, &whole_state);
      for (const int64_t chunk : kChunks) {
        SCOPED_TRACE(fmt::format("{} {} heads in chunks of {}", isa, setup.heads, chunk));
        EXPECT_TRUE(same_bits(scan_in_chunks(*threads, test, chunk, &state), whole));
        EXPECT_TRUE(same_bits(state, whole_state));
      }
    }
  }
}

TEST(Scan, WrongGuessesLeaveTheStateBeforeThem) {
  for (const std::string& isa : available_isas()) {
    const auto backend = make_backend(isa, 2);
    for (const ScanSetup& setup : kScanSetups) {
      const ScanCase test(setup);
      Floats state;
      const Floats whole = scan_in_chunks(*backend, test, kTokens, &state);
      StateSlab slab(setup.heads, setup.state_width, setup.head_dim, kTokens);
      const auto step = [&](const Span& span) { return scan_chunk(*backend, test, slab, span); };
      EXPECT_TRUE(same_bits(run_with_guesses(kTokens, test.width, slab, step), whole)) << isa;
      EXPECT_TRUE(same_bits(slab.at(kTokens), state)) << isa;
    }
  }
}

TEST(Scan, LimitsOfTheTimeStepDecide) {
  const auto backend = make_backend("reference", 1);
  ScanSetup free = kScanSetups[1];
  free.least = 0;
  free.most = kInfinity;
  Floats state, free_state;
  const Floats limited = scan_in_chunks(*backend, ScanCase(kScanSetups[1]), kTokens, &state);
  const Floats unlimited = scan_in_chunks(*backend, ScanCase(free), kTokens, &free_state);
  EXPECT_FALSE(same_bits(limited, unlimited));
  EXPECT_FALSE(same_bits(state, free_state));
}

}  // namespace
}  // namespace headrace
