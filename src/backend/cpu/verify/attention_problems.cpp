// attention: causal, windowed, capped, with sinks, over scattered KV blocks.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "backend/cpu/verify/kv_slab.h"
#include "base/check.h"

namespace headrace::cpu {
namespace {

struct AttentionCase {
  int num_heads, num_kv_heads, head_dim;
  KvDtype type;
  float softcap;
  int64_t window;
  bool sinks;
  int64_t num_rows, first_position;
  bool slopes = false;
  bool by_whole_numbers = false;  // of class kFixed
};

constexpr KvDtype kF32 = KvDtype::kF32, kBF16 = KvDtype::kBF16, kF16 = KvDtype::kF16,
                  kFp8 = KvDtype::kFp8, kInt8 = KvDtype::kInt8, kInt16 = KvDtype::kInt16;
constexpr AttentionCase kCases[] = {
    {4, 2, 64, kF32, 0, 0, false, 0, 5},
    {1, 1, 1, kF32, 0, 0, false, 1, 0},
    {2, 2, 16, kBF16, 0, 0, false, 3, 15},
    {3, 1, 17, kF32, 0, 0, false, 19, 0},
    {9, 3, 64, kF32, 0, 0, false, 7, 121},
    {9, 3, 64, kBF16, 0, 0, false, 20, 60},
    {6, 1, 32, kF32, 20, 0, false, 5, 63},
    {4, 4, 64, kBF16, 0, 17, false, 40, 50},
    {4, 2, 24, kF32, 0, 64, true, 9, 180},
    {5, 1, 40, kBF16, 30, 1, true, 4, 62},
    {3, 1, 80, kF32, 0, 100, false, 11, 97},
    {2, 1, 96, kBF16, 0, 0, true, 3, 127},
    {14, 2, 64, kBF16, 0, 0, false, 1, kKvSplit + 44},
    {4, 1, 256, kF32, 0, 65, false, 3, 200},
    {2, 1, 512, kBF16, 0, 0, false, 2, 70},
    {8, 8, 128, kF32, 50, 0, true, 2, 64},
    {4, 2, 64, kF16, 0, 0, false, 9, 70},
    {3, 1, 33, kF16, 0, 21, false, 2, 75},
    {5, 1, 50, kInt8, 0, 30, false, 1, 94},
    {6, 2, 40, kFp8, 0, 0, true, 5, 130},
    {9, 3, 64, kInt8, 0, 0, false, 7, 121},
    {4, 1, 80, kInt8, 15, 33, true, 6, kKvSplit + 34},
    {4, 4, 33, kFp8, 20, 70, false, 3, kKvSplit + 4},
    {6, 2, 48, kBF16, 0, 0, false, 5, 2 * kKvSplit - 2},
    {4, 1, 32, kF32, 0, 300, true, 3, 2 * kKvSplit + 88},
    {4, 2, 24, kF32, 0, 0, false, 20, 60, true},
    {3, 3, 33, kBF16, 0, 0, false, 70, 0, true},
    {6, 1, 64, kInt8, 0, 40, false, 1, kKvSplit + 44, true},
    {9, 3, 64, kInt16, 0, 0, false, 7, 121},
    {8, 1, 80, kInt16, 15, 33, true, 6, kKvSplit + 34},
    {6, 2, 40, kInt16, 0, 0, true, 30, 60},
    {3, 3, 16, kInt16, 0, 17, false, 40, 50},
    {5, 1, 33, kInt16, 0, 0, false, 1, 2 * kKvSplit + 9},
    {6, 1, 128, kInt16, 0, 300, false, 20, kKvSplit + 44, true},
    {2, 1, 512, kInt16, 0, 0, false, 9, 70},
};
constexpr AttentionCase kStartCases[] = {
    {6, 2, 40, kF32, 0, 0, true, 3, 78},
    {3, 1, 32, kBF16, 20, 70, false, 2, 100},
    {2, 2, 32, kF32, 0, 0, false, 3, 70, true},
    {6, 2, 48, kInt16, 0, 0, true, 5, 77},
};

enum class Scores : uint8_t {
  kRandom,
  kPeaked,  // one key takes nearly all the weight; the maximum rises and falls between steps
  kLarge,   // values of 2^40
  kEqual,   // queries of zero: the weights are equal, the output is the mean of whole numbers
};
constexpr std::string_view kScoreNames[] = {"random", "peaked", "large values", "equal scores"};

// [positions, kv heads, head_dim] as stored, and [rows, heads, head_dim]. What no row sees is not
// stored: it may hold anything, and stays NaN.
struct Inputs {
  std::vector<float> q, sinks, slopes;
  std::vector<double> k, v;

  Inputs(const AttentionCase& setup, Scores scores, KvSlab* slab, Random& random) {
    const int64_t positions = setup.first_position + setup.num_rows;
    const bool equal = scores == Scores::kEqual;
    q = sample_values(Values::kRandom, setup.num_rows, int64_t{setup.num_heads} * setup.head_dim,
                      random);
    for (float& value : q) value *= equal ? 0.0f : scores == Scores::kPeaked ? 12.0f : 1.0f;
    sinks = sample_values(Values::kRandom, 1, setup.num_heads, random);
    for (float& value : sinks) value *= equal ? 0.0f : 2.0f;
    for (int h = 0; h < setup.num_heads; ++h) {
      slopes.push_back(equal ? 0.0f : std::exp2(-1.0f - static_cast<float>(h)));
    }
    const Values v_values = equal                      ? Values::kWhole
                            : scores == Scores::kLarge ? Values::kLarge
                                                       : Values::kRandom;
    const int64_t seen =
        setup.window > 0 ? std::max<int64_t>(0, setup.first_position + 1 - setup.window) : 0;
    const auto keep = [&](KvSlab::Plane plane, int64_t position, int head, Values values) {
      const auto x = sample_values(values, 1, setup.head_dim, random);
      if (position >= seen) return slab->store({plane, position, head}, x);
      return std::vector<double>(x.size());
    };
    for (int64_t j = 0; j < positions; ++j) {
      for (int h = 0; h < setup.num_kv_heads; ++h) {
        const auto key = keep(KvSlab::Plane::kKey, j, h, Values::kRandom);
        k.insert(k.end(), key.begin(), key.end());
        const auto value = keep(KvSlab::Plane::kValue, j, h, v_values);
        v.insert(v.end(), value.begin(), value.end());
      }
    }
  }
};

float scale_of(const AttentionCase& setup) {
  return 0.7f / std::sqrt(static_cast<float>(setup.head_dim));
}

struct KeyWeight {
  double score, error, weight;
};

// Of class kFixed: half a step for each number of one side. Of scores half of what T counts; of
// sums of values the products of both low bytes, which are left out: signs as they come, so that
// sums of n grow by its root.
double largest_of(std::span<const double> x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}
double left_out(double n) { return 255.0 * 128.0 * std::min(n, 4 * std::sqrt(n)); }
constexpr double kStepsOfLargest = double{kFixedActivationLimit};

double score_error(std::span<const float> q, std::span<const double> k) {
  double largest_q = 0, sum = 0;
  for (const float value : q) largest_q = std::max(largest_q, std::fabs(double{value}));
  for (const double value : k) sum += std::fabs(value);
  const double unit = largest_q / kStepsOfLargest, k_unit = largest_of(k) / kStepsOfLargest;
  return unit * (0.51 * sum + k_unit * 128.5);
}

// Of dimension d of the values of keys from `lowest` on, whose weights are made whole numbers step
// by step.
double value_error(std::span<const KeyWeight> keys, int64_t lowest,
                   const std::function<std::span<const double>(int64_t)>& value_of, size_t d) {
  double error = 0;
  for (size_t i = 0; i < keys.size();) {
    const int64_t step = (lowest + static_cast<int64_t>(i)) / kKvStep;
    double largest = 0, codes = 0;
    for (; i < keys.size() && (lowest + static_cast<int64_t>(i)) / kKvStep == step; ++i) {
      const auto value = value_of(lowest + static_cast<int64_t>(i));
      const double scale = largest_of(value) / kStepsOfLargest;
      largest = std::max(largest, keys[i].weight * scale);
      if (scale > 0) codes += std::fabs(value[d]) / scale;
    }
    error += largest / kStepsOfLargest * (0.51 * codes + left_out(kKvStep));
  }
  return error;
}

// Scores of the keys that query row m, head h sees, with bounds on their errors.
std::vector<KeyWeight> visible_keys(const AttentionCase& setup, const Inputs& in, int64_t m, int h,
                                    int64_t lowest) {
  const int64_t dim = setup.head_dim, kv_width = setup.num_kv_heads * dim;
  const int kv_head = h / (setup.num_heads / setup.num_kv_heads);
  const float* q = in.q.data() + (m * setup.num_heads + h) * dim;
  const double scale = double{scale_of(setup)};
  std::vector<KeyWeight> keys;
  for (int64_t j = lowest; j <= setup.first_position + m; ++j) {
    const double* k = in.k.data() + j * kv_width + kv_head * dim;
    double dot = 0, magnitude = 0;
    for (int64_t d = 0; d < dim; ++d) {
      dot += double{q[d]} * k[d];
      magnitude += std::fabs(double{q[d]} * k[d]);
    }
    KeyWeight key{dot * scale, 0, 0};
    key.error = kRound * scale * magnitude * (4 * std::sqrt(static_cast<double>(dim)) + 4);
    if (setup.by_whole_numbers) {
      const auto size = static_cast<size_t>(dim);
      key.error += scale * score_error({q, size}, {k, size});
    }
    if (setup.slopes) {
      const auto back = static_cast<double>(j - (setup.first_position + m));
      key.score += back * double{in.slopes[static_cast<size_t>(h)]};
      key.error += 4 * kRound * (std::fabs(key.score) + scale * magnitude);
    }
    if (setup.softcap > 0) {
      key.score = setup.softcap * std::tanh(key.score / setup.softcap);
      key.error += 6e-7 * std::fabs(key.score);
    }
    keys.push_back(key);
  }
  return keys;
}

void expect_head(const AttentionCase& setup, const Inputs& in, int64_t m, int h, Scores scores,
                 Expected* out) {
  const int64_t dim = setup.head_dim, kv_width = setup.num_kv_heads * dim;
  const int64_t position = setup.first_position + m;
  const int64_t lowest = setup.window > 0 ? std::max<int64_t>(0, position + 1 - setup.window) : 0;
  std::vector<KeyWeight> keys = visible_keys(setup, in, m, h, lowest);
  double top = setup.sinks ? double{in.sinks[static_cast<size_t>(h)]}
                           : -std::numeric_limits<double>::infinity();
  double total = setup.sinks ? 1.0 : 0.0, worst = 0;
  for (const KeyWeight& key : keys) {
    if (key.score > top) total *= std::exp(top - key.score);
    top = std::max(top, key.score);
    total += std::exp(key.score - top);
  }
  for (KeyWeight& key : keys) {
    key.weight = std::exp(key.score - top) / total;
    // Of exp: its own error, and one rounding of the difference, which is at most |score| + |top|.
    worst =
        std::max(worst, key.error + 4e-7 + 2 * kRound * (std::fabs(key.score) + std::fabs(top)));
  }
  const int kv_head = h / (setup.num_heads / setup.num_kv_heads);
  const double steps = 70 + static_cast<double>(keys.size()) / kKvStep * 2;
  // With equal scores all sums are whole: the quotient is rounded once, or twice as a product with
  // 1 / total, unless total is a power of two.
  const bool whole = scores == Scores::kEqual && !kv_is_scaled(setup.type);
  const bool power = whole && std::exp2(std::round(std::log2(total))) == std::round(total);
  for (int64_t d = 0; d < dim; ++d) {
    double value = 0, magnitude = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const int64_t j = lowest + static_cast<int64_t>(i);
      const double v = in.v[static_cast<size_t>(j * kv_width + kv_head * dim + d)];
      value += keys[i].weight * v;
      magnitude += keys[i].weight * std::fabs(v);
    }
    double tolerance = (4 * worst + 2 * kRound * steps) * magnitude + 2 * kTiny;
    if (setup.by_whole_numbers) {
      const auto value_of = [&](int64_t j) -> std::span<const double> {
        return {in.v.data() + j * kv_width + kv_head * dim, static_cast<size_t>(dim)};
      };
      tolerance += value_error(keys, lowest, value_of, static_cast<size_t>(d));
    }
    if (whole) {
      out[d] = {power ? std::round(value * total) / total : value,
                power ? 0 : 4 * kRound * std::fabs(value) + 4 * kRound * magnitude};
    } else {
      out[d] = {value, tolerance};
    }
  }
}

AttentionRowsArgs base_args(const AttentionCase& setup, const KvSlab& slab) {
  AttentionRowsArgs args{};
  args.row_stride = int64_t{setup.num_heads} * setup.head_dim;
  args.num_heads = setup.num_heads;
  args.num_kv_heads = setup.num_kv_heads;
  args.head_dim = setup.head_dim;
  args.kv_type = setup.type;
  args.kv_block_stride = slab.block_stride();
  args.scale = scale_of(setup);
  args.softcap = setup.softcap;
  args.window = setup.window;
  return args;
}

// Rows of a tile of the parts: few, or so many of many that tiles of an instruction set take them;
// and splits that any case needs.
constexpr int64_t kMostPartRows = 12;
constexpr int64_t part_rows(int64_t num_rows) {
  return num_rows < 2 * kMostPartRows ? 2 : kMostPartRows;
}
constexpr int64_t kPartSplits = 3;
constexpr int64_t kPartFloats = kMostPartRows * kPartSplits * (kMaxHeadDim + 32);

// Tiles as large as may be, each in one call; or small ones, split by split, last split first, with
// a merge.
void call_tile(AttentionRowsArgs args, const KernelRow& row, bool in_parts) {
  args.work = AttentionWork::kWhole;
  if (!in_parts) return row.function.attention(args);
  args.work = AttentionWork::kSplit;
  const int64_t first = attention_lowest(args, args.first_row) / kKvSplit;
  const int64_t last = (attention_end(args, args.first_row + args.num_rows - 1) - 1) / kKvSplit;
  CHECK(last - first < kPartSplits, "splits {} to {}", first, last);
  for (args.split = last; args.split >= first; --args.split) row.function.attention(args);
  args.work = AttentionWork::kMerge;
  row.function.attention(args);
}

void call_attention(const AttentionCase& setup, AttentionRowsArgs args, const KernelRow& row,
                    Places at, bool in_parts) {
  const int64_t rows = setup.num_rows * (setup.num_heads / setup.num_kv_heads);
  const int64_t part = in_parts ? part_rows(rows) : kAttentionRows;
  args.q = floats(at[0]);
  args.kv_base = at[1];
  args.block_table = reinterpret_cast<const int32_t*>(at[2]);
  args.sinks = setup.sinks ? floats(at[3]) : nullptr;
  args.slopes = setup.slopes ? floats(at[6]) : nullptr;
  args.out = floats(at[4]);
  args.scratch = floats(at[5]);
  args.partials = args.scratch + kAttentionScratchFloats;
  args.first_position = setup.first_position;
  if (in_parts) args.following[0] = args.following[kStepBlocks - 1] = args.kv_base;
  for (args.kv_head = 0; args.kv_head < setup.num_kv_heads; ++args.kv_head) {
    for (args.first_row = 0; args.first_row < std::max<int64_t>(1, rows); args.first_row += part) {
      args.num_rows = std::min(part, rows - args.first_row);
      if (args.num_rows > 0) {
        call_tile(args, row, in_parts);
      } else {
        row.function.attention(args);
      }
    }
  }
}

Problem attention_problem(const AttentionCase& setup, Scores scores) {
  Random random(static_cast<uint32_t>(setup.head_dim * 1000 + setup.first_position));
  const int64_t positions = setup.first_position + setup.num_rows;
  const int64_t dim = setup.head_dim, q_width = setup.num_heads * dim;
  KvSlab slab(setup.type, setup.num_kv_heads, setup.head_dim, positions);
  const Inputs in(setup, scores, &slab, random);
  Operand out = poisoned_output("out", setup.num_rows, q_width, q_width);
  for (int64_t m = 0; m < setup.num_rows; ++m) {
    for (int h = 0; h < setup.num_heads; ++h) {
      expect_head(setup, in, m, h, scores, out.expected.data() + m * q_width + h * dim);
    }
  }
  Problem problem;
  problem.name =
      fmt::format("{} rows from {}, heads {}/{} of {}, {}, softcap {}, window {}{}, {}",
                  setup.num_rows, setup.first_position, setup.num_heads, setup.num_kv_heads,
                  setup.head_dim, kv_type_name(setup.type), setup.softcap, setup.window,
                  setup.sinks    ? ", sinks"
                  : setup.slopes ? ", slopes"
                                 : "",
                  kScoreNames[static_cast<size_t>(scores)]);
  if (setup.by_whole_numbers) problem.name += ", by whole numbers";
  problem.operands = {input_of("q", in.q),
                      slab.input(),
                      input_of("block table", slab.table()),
                      input_of("sinks", in.sinks),
                      std::move(out),
                      scratch_of(kAttentionScratchFloats + kPartFloats),
                      input_of("slopes", in.slopes)};
  problem.call = [setup, args = base_args(setup, slab)](const KernelRow& row, Places at,
                                                        bool in_parts) {
    call_attention(setup, args, row, at, in_parts);
  };
  return problem;
}

}  // namespace

void visit_attention_problems(const KernelRow& row, Depth depth, const Visit& visit) {
  const std::span<const AttentionCase> cases =
      depth == Depth::kStart ? std::span<const AttentionCase>(kStartCases) : kCases;
  for (AttentionCase setup : cases) {
    if (row.activation == ActivationType::kFixed) {
      setup.type = kInt16;
      setup.by_whole_numbers = true;
    }
    if (depth == Depth::kStart) {
      visit([&] { return attention_problem(setup, Scores::kRandom); });
      continue;
    }
    for (const Scores scores : {Scores::kRandom, Scores::kPeaked, Scores::kLarge, Scores::kEqual}) {
      visit([&] { return attention_problem(setup, scores); });
    }
  }
}

}  // namespace headrace::cpu
