// qkv: norm, rope and scale of queries and keys, append to the KV blocks.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/verify/kv_slab.h"

namespace headrace::cpu {
namespace {

enum class HeadNorm : uint8_t { kNone, kPerHead, kWhole, kLayer, kAfterRope };

struct QkvCase {
  HeadNorm norm;
  bool interleaved;
  int rope_dims;
  bool scaled;
  int num_heads, num_kv_heads, head_dim;
  KvDtype type;
  int64_t num_rows, first_position;
  int kv_parts = 2;
  bool norm_v = false;
  float clip = 0;
};

constexpr KvDtype kF32 = KvDtype::kF32, kBF16 = KvDtype::kBF16, kF16 = KvDtype::kF16,
                  kFp8 = KvDtype::kFp8, kInt8 = KvDtype::kInt8, kInt16 = KvDtype::kInt16;
constexpr QkvCase kCases[] = {
    {HeadNorm::kNone, false, 0, false, 4, 2, 64, kF32, 0, 3},
    {HeadNorm::kNone, false, 0, false, 1, 1, 1, kF32, 2, 0},
    {HeadNorm::kNone, false, 0, true, 3, 1, 17, kBF16, 5, 14},
    {HeadNorm::kNone, false, 64, true, 4, 2, 64, kF32, 9, 11},
    {HeadNorm::kNone, true, 64, false, 9, 3, 64, kBF16, 19, 0},
    {HeadNorm::kPerHead, false, 24, false, 2, 2, 24, kF32, 3, 31},
    {HeadNorm::kPerHead, true, 32, true, 4, 2, 80, kBF16, 17, 47},
    {HeadNorm::kPerHead, false, 96, false, 2, 1, 96, kBF16, 4, 5},
    {HeadNorm::kWhole, false, 20, false, 4, 2, 40, kF32, 9, 11},
    {HeadNorm::kWhole, true, 30, true, 3, 3, 33, kBF16, 2, 15},
    {HeadNorm::kPerHead, false, 256, true, 4, 1, 256, kF32, 3, 63},
    {HeadNorm::kNone, false, 128, false, 2, 1, 512, kBF16, 2, 1},
    {HeadNorm::kNone, true, 128, false, 14, 2, 128, kF32, 2, 100},
    {HeadNorm::kNone, false, 64, false, 4, 2, 64, kF16, 9, 11},
    {HeadNorm::kNone, false, 0, false, 2, 2, 33, kFp8, 5, 14},
    {HeadNorm::kPerHead, false, 64, true, 9, 3, 64, kFp8, 17, 30},
    {HeadNorm::kNone, false, 0, false, 2, 2, 33, kInt8, 5, 14},
    {HeadNorm::kPerHead, true, 80, false, 4, 1, 80, kInt8, 6, 61},
    {HeadNorm::kPerHead, false, 64, true, 9, 3, 64, kInt16, 17, 30},
    {HeadNorm::kNone, false, 0, false, 2, 2, 33, kInt16, 5, 14},
    {HeadNorm::kPerHead, false, 24, false, 4, 2, 24, kF32, 7, 12, 2, true},
    {HeadNorm::kPerHead, false, 64, false, 4, 2, 64, kFp8, 5, 9, 2, true},
    {HeadNorm::kPerHead, false, 32, true, 4, 2, 33, kF32, 7, 12, 1, true},
    {HeadNorm::kPerHead, false, 512, false, 2, 1, 512, kBF16, 4, 14, 1, true},
    {HeadNorm::kNone, false, 0, false, 2, 2, 40, kF16, 3, 15, 1, false},
    {HeadNorm::kPerHead, false, 96, true, 4, 2, 96, kBF16, 5, 3, 0, true},
    {HeadNorm::kWhole, false, 20, false, 4, 4, 20, kF32, 2, 15, 0, false},
    {HeadNorm::kLayer, false, 16, false, 4, 2, 40, kF32, 9, 11},
    {HeadNorm::kLayer, true, 32, true, 3, 1, 33, kBF16, 2, 15},
    {HeadNorm::kAfterRope, false, 40, false, 4, 2, 40, kF32, 9, 11},
    {HeadNorm::kAfterRope, false, 16, true, 3, 1, 33, kBF16, 2, 15},
    {HeadNorm::kNone, false, 64, true, 4, 2, 64, kF32, 9, 11, 2, false, 0.5f},
    {HeadNorm::kWhole, false, 20, false, 4, 2, 40, kF32, 9, 11, 2, true, 0.25f},
    {HeadNorm::kPerHead, true, 32, false, 3, 1, 33, kBF16, 5, 14, 2, false, 1.0f},
};
constexpr QkvCase kStartCases[] = {
    {HeadNorm::kPerHead, false, 24, true, 4, 2, 40, kF32, 3, 15},
    {HeadNorm::kWhole, true, 32, false, 2, 1, 32, kBF16, 3, 31},
    {HeadNorm::kPerHead, false, 40, false, 4, 2, 40, kF32, 3, 15, 1, true},
    {HeadNorm::kPerHead, false, 16, false, 2, 1, 20, kF32, 3, 15, 2, false, 0.5f},
};

constexpr float kEps = 1e-6f;

struct Inputs {
  std::vector<float> qkv, q_weight, k_weight, cos, sin, row_scale;

  Inputs(const QkvCase& setup, Values values, Random& random) {
    const int64_t dim = setup.head_dim;
    const int64_t width = (setup.num_heads + setup.kv_parts * setup.num_kv_heads) * dim;
    // Turns by a right angle keep whole numbers whole.
    const Values turns = are_whole(values) ? Values::kZeroOne : Values::kRandom;
    qkv = sample_values(values, setup.num_rows, width, random);
    q_weight = sample_values(Values::kRandom, 1, setup.num_heads * dim, random);
    k_weight = sample_values(Values::kRandom, 1, setup.num_kv_heads * dim, random);
    cos = sample_values(turns, setup.num_rows, setup.rope_dims / 2, random);
    sin = sample_values(turns, setup.num_rows, setup.rope_dims / 2, random);
    row_scale = sample_values(are_whole(values) ? Values::kWhole : Values::kRandom, 1,
                              setup.num_rows, random);
  }
};

// Norms the heads of one projection, `group` values together; a null weight is ones. Errors are
// those of the factor and two products.
struct GroupNorm {
  int64_t group;
  bool layer = false;
};
void norm_heads(const GroupNorm& norm, const float* weight, std::vector<Expected>* heads) {
  const int64_t group = norm.group;
  const auto width = static_cast<int64_t>(heads->size());
  const bool whole = group == width;
  for (int64_t first = 0; first < width; first += group) {
    const auto count = static_cast<double>(group);
    double mean = 0, magnitude = 0, squares = 0;
    for (int64_t i = first; i < first + group; ++i) {
      mean += (*heads)[static_cast<size_t>(i)].value / count;
      magnitude += std::fabs((*heads)[static_cast<size_t>(i)].value) / count;
    }
    if (!norm.layer) mean = magnitude = 0;
    for (int64_t i = first; i < first + group; ++i) {
      const double centred = (*heads)[static_cast<size_t>(i)].value - mean;
      squares += centred * centred;
    }
    const double factor = 1 / std::sqrt(squares / count + double{kEps});
    const double steps = static_cast<double>(group) / 16 + 16;
    for (int64_t i = first; i < first + group; ++i) {
      Expected& head = (*heads)[static_cast<size_t>(i)];
      const bool own = whole || norm.layer;
      const double w = weight == nullptr ? 1 : double{weight[own ? i : i - first]};
      const double slope = factor * std::fabs(w);
      head.value = (head.value - mean) * factor * w;
      // The mean's rounding reaches each value, and through their squares the factor.
      const double shift = 4 * kRound * steps * magnitude;
      head.tolerance = kRound * steps * std::fabs(head.value) + (2 * slope + 2) * kTiny +
                       (slope + factor * std::fabs(head.value)) * shift + slope * head.tolerance +
                       3 * kRound * slope * std::fabs(mean);
    }
  }
}

double clipped(const QkvCase& setup, double value) {
  const auto limit = double{setup.clip};
  return limit > 0 ? std::clamp(value, -limit, limit) : value;
}

void rotate_heads(const QkvCase& setup, const float* cos, const float* sin, bool whole,
                  std::vector<Expected>* heads) {
  const int half = setup.rope_dims / 2;
  for (size_t first = 0; first < heads->size(); first += static_cast<size_t>(setup.head_dim)) {
    for (int i = 0; i < half; ++i) {
      Expected& a = (*heads)[first + static_cast<size_t>(setup.interleaved ? 2 * i : i)];
      Expected& b = (*heads)[first + static_cast<size_t>(setup.interleaved ? 2 * i + 1 : i + half)];
      const Expected x = a, y = b;
      const double c = double{cos[i]}, s = double{sin[i]};
      a.value = x.value * c - y.value * s;
      b.value = y.value * c + x.value * s;
      if (whole && setup.norm == HeadNorm::kNone) continue;
      const auto error = [](double p, double q) {
        return 3 * kRound * (std::fabs(p) + std::fabs(q));
      };
      a.tolerance = x.tolerance * std::fabs(c) + y.tolerance * std::fabs(s) +
                    error(x.value * c, y.value * s) + 4 * kTiny;
      b.tolerance = y.tolerance * std::fabs(c) + x.tolerance * std::fabs(s) +
                    error(y.value * c, x.value * s) + 4 * kTiny;
    }
  }
}

// Queries or keys of row m, starting at x.
std::vector<Expected> finished_heads(const QkvCase& setup, const Inputs& in, int64_t m,
                                     std::span<const float> x, const float* weight, bool whole) {
  std::vector<Expected> heads;
  for (const float value : x) heads.push_back({double{value}, 0});
  const int half = setup.rope_dims / 2;
  const int64_t group = setup.norm == HeadNorm::kWhole ? std::ssize(heads) : setup.head_dim;
  const bool after = setup.norm == HeadNorm::kAfterRope;
  const bool layer = setup.norm == HeadNorm::kLayer;
  if (setup.norm != HeadNorm::kNone && !after) norm_heads({group, layer}, weight, &heads);
  for (Expected& head : heads) head.value = clipped(setup, head.value);
  rotate_heads(setup, in.cos.data() + m * half, in.sin.data() + m * half, whole, &heads);
  if (after) norm_heads({group, layer}, weight, &heads);
  return heads;
}

// Values of row m, starting at x.
std::vector<Expected> finished_values(const QkvCase& setup, std::span<const float> x) {
  std::vector<Expected> heads;
  for (const float value : x) heads.push_back({double{value}, 0});
  if (setup.norm_v) norm_heads({setup.head_dim}, nullptr, &heads);
  return heads;
}

// Keys and values of row m, starting at x, which the slab is to hold.
void expect_kv(const QkvCase& setup, const Inputs& in, int64_t m, std::span<const float> x,
               bool whole, KvSlab* slab) {
  const auto dim = static_cast<size_t>(setup.head_dim);
  const size_t width = static_cast<size_t>(setup.num_kv_heads) * dim;
  const auto k = finished_heads(setup, in, m, x.first(width), in.k_weight.data(), whole);
  const auto v = finished_values(setup, x.last(width));
  for (int h = 0; h < setup.num_kv_heads; ++h) {
    const int64_t position = setup.first_position + m;
    std::vector<Approximate> keys, values;
    for (size_t d = 0; d < dim; ++d) {
      const size_t at = static_cast<size_t>(h) * dim + d;
      keys.push_back({k[at].value, k[at].tolerance});
      values.push_back({clipped(setup, v[at].value), v[at].tolerance});
    }
    slab->expect({KvSlab::Plane::kKey, position, h}, keys);
    slab->expect({KvSlab::Plane::kValue, position, h}, values);
  }
}

void expect_row(const QkvCase& setup, const Inputs& in, int64_t m, bool whole, Operand* q_out,
                KvSlab* slab) {
  const auto dim = static_cast<size_t>(setup.head_dim);
  const size_t q_width = static_cast<size_t>(setup.num_heads) * dim;
  const size_t width = q_width + static_cast<size_t>(setup.kv_parts * setup.num_kv_heads) * dim;
  const std::span<const float> row(in.qkv.data() + static_cast<size_t>(m) * width, width);
  const auto q = finished_heads(setup, in, m, row.first(q_width), in.q_weight.data(), whole);
  const double scale = setup.scaled ? double{in.row_scale[static_cast<size_t>(m)]} : 1.0;
  for (size_t i = 0; i < q_width; ++i) {
    const double value = q[i].value * scale;
    const double rounding =
        setup.scaled && !(whole && q[i].tolerance == 0) ? kRound * std::fabs(value) + kTiny : 0;
    q_out->expected[static_cast<size_t>(m) * q_width + i] = {
        value, q[i].tolerance * std::fabs(scale) + rounding};
  }
  if (setup.kv_parts > 0) expect_kv(setup, in, m, row.subspan(q_width), whole, slab);
}

Problem qkv_problem(const QkvCase& setup, Values values, bool see_scales) {
  Random random(static_cast<uint32_t>(setup.head_dim * 100 + setup.num_rows));
  const Inputs in(setup, values, random);
  const int64_t q_width = int64_t{setup.num_heads} * setup.head_dim;
  const int64_t width = q_width + int64_t{setup.kv_parts} * setup.num_kv_heads * setup.head_dim;
  KvSlab slab(setup.type, setup.num_kv_heads, setup.head_dim,
              setup.first_position + setup.num_rows);
  Operand q_out = poisoned_output("q", setup.num_rows, q_width, q_width);
  for (int64_t m = 0; m < setup.num_rows; ++m) {
    expect_row(setup, in, m, are_whole(values), &q_out, &slab);
  }
  constexpr std::string_view kNorms[] = {"no norm", "norm per head", "norm over heads",
                                         "layer norm per head", "norm after rope"};
  Problem problem;
  problem.name = fmt::format(
      "{} rows from {}, heads {}/{} of {}, {}, clip {}, rope {}{}{}, {} parts{}, {}, {}",
      setup.num_rows, setup.first_position, setup.num_heads, setup.num_kv_heads, setup.head_dim,
      kNorms[static_cast<size_t>(setup.norm)], setup.clip, setup.rope_dims,
      setup.interleaved ? " interleaved" : "", setup.scaled ? ", scaled" : "", setup.kv_parts,
      setup.norm_v ? ", values normed" : "", kv_type_name(setup.type), values_name(values));
  const int64_t stride_of_rows = width + 5;
  problem.operands = {strided_input("qkv", in.qkv, width, stride_of_rows),
                      input_of("q weight", in.q_weight),
                      input_of("k weight", in.k_weight),
                      input_of("cos", in.cos),
                      input_of("sin", in.sin),
                      input_of("row scale", in.row_scale),
                      input_of("block table", slab.table()),
                      std::move(q_out),
                      see_scales ? slab.scales_output() : slab.codes_output()};
  problem.call = [=, stride = slab.block_stride()](const KernelRow& row, Places at, bool in_parts) {
    const int64_t part = in_parts ? 3 : std::max<int64_t>(1, setup.num_rows);
    for (int64_t m = 0; m < std::max<int64_t>(1, setup.num_rows); m += part) {
      QkvRowsArgs args{};
      args.qkv = floats(at[0]) + m * stride_of_rows;
      args.qkv_stride = stride_of_rows;
      args.q_out = floats(at[7]) + m * q_width;
      args.num_rows = std::min(part, setup.num_rows - m);
      args.num_heads = setup.num_heads;
      args.num_kv_heads = setup.num_kv_heads;
      args.head_dim = setup.head_dim;
      args.kv_parts = setup.kv_parts;
      args.norm_v = setup.norm_v;
      args.kv_type = setup.type;
      args.kv_base = at[8];
      args.kv_block_stride = stride;
      args.first_position = setup.first_position + m;
      args.block_table = reinterpret_cast<const int32_t*>(at[6]);
      args.q_norm = setup.norm == HeadNorm::kNone ? nullptr : floats(at[1]);
      args.k_norm = setup.norm == HeadNorm::kNone ? nullptr : floats(at[2]);
      args.norm_whole = setup.norm == HeadNorm::kWhole;
      args.norm_layer = setup.norm == HeadNorm::kLayer;
      args.norm_after_rope = setup.norm == HeadNorm::kAfterRope;
      args.norm_eps = kEps;
      args.clip = setup.clip;
      args.rope_interleaved = setup.interleaved;
      args.rope_dims = setup.rope_dims;
      args.rope_cos = floats(at[3]) + m * (setup.rope_dims / 2);
      args.rope_sin = floats(at[4]) + m * (setup.rope_dims / 2);
      args.q_row_scale = setup.scaled ? floats(at[5]) + m : nullptr;
      row.function.qkv(args);
    }
  };
  return problem;
}

}  // namespace

void visit_qkv_problems(const KernelRow&, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    for (const QkvCase& setup : kStartCases)
      visit([&] { return qkv_problem(setup, Values::kRandom, false); });
    return;
  }
  constexpr Values kQuick[] = {Values::kRandom, Values::kSmall, Values::kWhole};
  constexpr Values kFull[] = {
      Values::kRandom, Values::kOneHot,   Values::kRamp,  Values::kAlternating, Values::kLarge,
      Values::kSmall,  Values::kDenormal, Values::kMixed, Values::kZeroOne,     Values::kWhole};
  const std::span<const Values> all =
      depth == Depth::kQuick ? std::span<const Values>(kQuick) : kFull;
  for (const QkvCase& setup : kCases) {
    for (const Values values : all) {
      visit([&] { return qkv_problem(setup, values, false); });
      if (kv_is_scaled(setup.type)) visit([&] { return qkv_problem(setup, values, true); });
    }
  }
}

}  // namespace headrace::cpu
