// store, latent, index: rows of a plane of their own, attention over it, scores of its index.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/verify/kv_slab.h"
#include "base/check.h"

namespace headrace::cpu {
namespace {

constexpr KvDtype kF32 = KvDtype::kF32, kBF16 = KvDtype::kBF16, kF16 = KvDtype::kF16,
                  kFp8 = KvDtype::kFp8, kInt8 = KvDtype::kInt8, kInt16 = KvDtype::kInt16;

// Of a slab of one head: where a plane of the first block lies.
size_t plane_offset(KvDtype type, int64_t width, KvSlab::Plane plane) {
  return plane == KvSlab::Plane::kValue ? kv_plane_bytes(type, width) : 0;
}

// ---- store --------------------------------------------------------------------------------------

struct StoreCase {
  KvDtype type;
  KvOrder order;
  int64_t width, position;
};
constexpr StoreCase kStoreCases[] = {
    {kF32, KvOrder::kValues, 32, 5},    {kF32, KvOrder::kKeys, 17, 0},
    {kBF16, KvOrder::kValues, 576, 15}, {kBF16, KvOrder::kKeys, 128, 16},
    {kF16, KvOrder::kValues, 33, 9},    {kF16, KvOrder::kKeys, 40, 31},
    {kFp8, KvOrder::kValues, 72, 6},    {kFp8, KvOrder::kKeys, 64, 19},
    {kInt8, KvOrder::kValues, 1024, 3}, {kInt8, KvOrder::kKeys, 512, 22},
    {kInt16, KvOrder::kValues, 72, 7},  {kInt16, KvOrder::kKeys, 33, 18},
};

Problem store_problem(const StoreCase& setup, Values values) {
  Random random(static_cast<uint32_t>(setup.width * 100 + setup.position));
  KvSlab slab(setup.type, 1, static_cast<int>(setup.width), setup.position + 1);
  const std::vector<float> x = sample_values(values, 1, setup.width, random);
  std::vector<Approximate> kept;
  for (const float value : x) kept.push_back({double{value}, 0});
  const auto plane = setup.order == KvOrder::kKeys ? KvSlab::Plane::kKey : KvSlab::Plane::kValue;
  slab.expect({plane, setup.position, 0}, kept);
  Problem problem;
  problem.name =
      fmt::format("{} numbers at {} as {}, {}", setup.width, setup.position,
                  setup.order == KvOrder::kKeys ? "keys" : "values", kv_type_name(setup.type));
  const auto block = static_cast<size_t>(slab.table()[static_cast<size_t>(setup.position / 16)]);
  const size_t offset = block * slab.block_stride() + plane_offset(setup.type, setup.width, plane);
  problem.operands = {input_of("x", x), slab.codes_output()};
  problem.call = [setup, offset](const KernelRow& row, Places at, bool) {
    row.function.store_row({floats(at[0]), setup.width, setup.type, setup.order,
                            setup.position % kKvBlock, at[1] + offset});
  };
  return problem;
}

// ---- latent -------------------------------------------------------------------------------------

struct LatentCase {
  int num_heads, width, value_dim;
  KvDtype type;
  int64_t num_rows, first_position;  // rows: tokens
  int64_t max_kept;                  // 0: all positions
};
constexpr LatentCase kLatentCases[] = {
    {4, 32, 24, kF32, 1, 0, 0},     {4, 32, 24, kF32, 7, 60, 0},
    {3, 17, 17, kF32, 5, 125, 0},   {16, 576, 512, kBF16, 2, 70, 0},
    {5, 72, 48, kBF16, 40, 3, 0},   {2, 1024, 1000, kF16, 1, 20, 0},
    {7, 40, 33, kInt8, 3, 63, 0},   {4, 80, 64, kFp8, 6, 90, 0},
    {130, 24, 16, kBF16, 1, 77, 0}, {4, 48, 32, kBF16, 3, kKvSplit - 2, 0},
    {6, 32, 24, kF32, 5, 200, 24},  {4, 40, 32, kBF16, 3, 2 * kKvSplit + 9, 40},
    {1, 16, 16, kInt8, 2, 150, 1},  {5, 48, 40, kInt16, 3, 61, 0},
};
constexpr LatentCase kLatentStartCases[] = {
    {4, 40, 24, kF32, 2, 70, 0},
    {3, 48, 32, kBF16, 2, 100, 20},
};

enum class Queries : uint8_t { kRandom, kPeaked, kZero };

struct LatentInputs {
  std::vector<float> q;
  std::vector<std::vector<double>> rows;  // by position, as stored
  std::vector<int32_t> kept;

  LatentInputs(const LatentCase& setup, Queries queries, KvSlab* slab, Random& random) {
    q = sample_values(Values::kRandom, setup.num_rows, int64_t{setup.num_heads} * setup.width,
                      random);
    const float factor = queries == Queries::kZero ? 0.0f : queries == Queries::kPeaked ? 12.0f : 1;
    for (float& value : q) value *= factor;
    const Values values = queries == Queries::kZero ? Values::kWhole : Values::kRandom;
    for (int64_t j = 0; j < setup.first_position + setup.num_rows; ++j) {
      rows.push_back(slab->store({KvSlab::Plane::kValue, j, 0},
                                 sample_values(values, 1, setup.width, random)));
    }
    for (int64_t m = 0; m < setup.num_rows && setup.max_kept > 0; ++m) {
      keep(setup, m, random);
    }
  }

  bool sees(const LatentCase& setup, int64_t m, int64_t position) const {
    if (position > setup.first_position + m) return false;
    if (setup.max_kept == 0) return true;
    const auto first = kept.begin() + m * stride(setup);
    return *first < 0 || std::binary_search(first + 1, first + 1 + *first, position);
  }
  static int64_t stride(const LatentCase& setup) { return setup.max_kept + 1; }

 private:
  // The second row keeps everything, the others positions anywhere.
  void keep(const LatentCase& setup, int64_t m, Random& random) {
    const int64_t end = setup.first_position + m + 1;
    std::vector<int32_t> chosen;
    for (int64_t i = 0; i < setup.max_kept; ++i) {
      chosen.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(end)));
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    kept.push_back(m == 1 ? -1 : static_cast<int32_t>(chosen.size()));
    chosen.resize(static_cast<size_t>(setup.max_kept), -7);
    kept.insert(kept.end(), chosen.begin(), chosen.end());
  }
};

float scale_of(int64_t width) { return 0.7f / std::sqrt(static_cast<float>(width)); }

void expect_latent(const LatentCase& setup, const LatentInputs& in, int64_t m, int h,
                   Expected* out) {
  const float* q = in.q.data() + (m * setup.num_heads + h) * setup.width;
  const double scale = double{scale_of(setup.width)};
  std::vector<double> scores, weights;
  std::vector<size_t> positions;
  double top = -INFINITY, worst = 0, total = 0;
  for (size_t j = 0; j < in.rows.size(); ++j) {
    if (!in.sees(setup, m, static_cast<int64_t>(j))) continue;
    double dot = 0, magnitude = 0;
    for (size_t d = 0; d < static_cast<size_t>(setup.width); ++d) {
      dot += double{q[d]} * in.rows[j][d];
      magnitude += std::fabs(double{q[d]} * in.rows[j][d]);
    }
    positions.push_back(j);
    scores.push_back(dot * scale);
    top = std::max(top, dot * scale);
    worst = std::max(worst, kRound * scale * magnitude * (4 * std::sqrt(setup.width) + 4));
  }
  double spread = 0;
  for (const double score : scores) {
    weights.push_back(std::exp(score - top));
    total += weights.back();
    spread = std::max(spread, std::fabs(score) + std::fabs(top));
  }
  worst += 4e-7 + 2 * kRound * spread;
  const double steps = 70 + static_cast<double>(scores.size()) / kKvStep * 2;
  for (size_t d = 0; d < static_cast<size_t>(setup.value_dim); ++d) {
    double value = 0, magnitude = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      value += weights[i] / total * in.rows[positions[i]][d];
      magnitude += weights[i] / total * std::fabs(in.rows[positions[i]][d]);
    }
    out[d] = {value, (4 * worst + 2 * kRound * steps) * magnitude + 2 * kTiny};
  }
}

constexpr int64_t kLatentPartRows = 3;
constexpr int64_t kLatentPartSplits = 4;
constexpr int64_t kLatentPartFloats = kLatentPartRows * kLatentPartSplits * (kMaxLatentWidth + 32);

void call_latent(const LatentCase& setup, LatentRowsArgs args, const KernelRow& row, Places at,
                 bool in_parts) {
  args.q = floats(at[0]);
  args.kv_base = at[1] + plane_offset(setup.type, setup.width, KvSlab::Plane::kValue);
  args.block_table = reinterpret_cast<const int32_t*>(at[2]);
  args.kept = setup.max_kept == 0 ? nullptr : reinterpret_cast<const int32_t*>(at[3]);
  args.out = floats(at[4]);
  args.scratch = floats(at[5]);
  args.partials = args.scratch + kAttentionScratchFloats;
  const int64_t rows = setup.num_rows * setup.num_heads,
                part = in_parts ? kLatentPartRows : kLatentRows;
  for (args.first_row = 0; args.first_row < rows; args.first_row += part) {
    args.num_rows = std::min(part, rows - args.first_row);
    args.work = AttentionWork::kWhole;
    if (!in_parts) {
      row.function.latent(args);
      continue;
    }
    args.work = AttentionWork::kSplit;
    const int64_t last = (latent_end(args, args.first_row + args.num_rows - 1) - 1) / kKvSplit;
    CHECK(last < kLatentPartSplits, "split {}", last);
    for (args.split = last; args.split >= 0; --args.split) row.function.latent(args);
    args.work = AttentionWork::kMerge;
    row.function.latent(args);
  }
}

Problem latent_problem(const LatentCase& setup, Queries queries) {
  Random random(static_cast<uint32_t>(setup.width * 1000 + setup.first_position));
  KvSlab slab(setup.type, 1, setup.width, setup.first_position + setup.num_rows);
  const LatentInputs in(setup, queries, &slab, random);
  const int64_t out_width = int64_t{setup.num_heads} * setup.value_dim;
  Operand out = poisoned_output("out", setup.num_rows, out_width, out_width);
  for (int64_t m = 0; m < setup.num_rows; ++m) {
    for (int h = 0; h < setup.num_heads; ++h) {
      expect_latent(setup, in, m, h,
                    out.expected.data() + m * out_width + int64_t{h} * setup.value_dim);
    }
  }
  LatentRowsArgs args{};
  args.first_position = setup.first_position;
  args.num_heads = setup.num_heads;
  args.width = setup.width;
  args.value_dim = setup.value_dim;
  args.kv_type = setup.type;
  args.kv_block_stride = slab.block_stride();
  args.scale = scale_of(setup.width);
  args.kept_stride = LatentInputs::stride(setup);
  Problem problem;
  problem.name = fmt::format("{} rows from {}, {} heads of {}, values of {}, {}, {} kept, form {}",
                             setup.num_rows, setup.first_position, setup.num_heads, setup.width,
                             setup.value_dim, kv_type_name(setup.type), setup.max_kept,
                             static_cast<int>(queries));
  problem.operands = {input_of("q", in.q),
                      slab.input(),
                      input_of("block table", slab.table()),
                      input_of("kept", in.kept),
                      std::move(out),
                      scratch_of(kAttentionScratchFloats + kLatentPartFloats)};
  problem.call = [setup, args](const KernelRow& row, Places at, bool in_parts) {
    call_latent(setup, args, row, at, in_parts);
  };
  return problem;
}

// ---- index --------------------------------------------------------------------------------------

struct IndexCase {
  int num_heads, dim;
  KvDtype type;
  int64_t step, end;
};
constexpr IndexCase kIndexCases[] = {
    {4, 16, kF32, 0, 1},     {64, 128, kBF16, 64, 128}, {7, 33, kF32, 64, 90},
    {3, 40, kInt16, 64, 99}, {1, 512, kF16, 128, 130},  {13, 40, kInt8, 0, 50},
    {5, 64, kFp8, 64, 200},
};

Problem index_problem(const IndexCase& setup) {
  Random random(static_cast<uint32_t>(setup.dim * 10 + setup.end));
  KvSlab slab(setup.type, 1, setup.dim, setup.end);
  const std::vector<float> q = sample_values(Values::kRandom, setup.num_heads, setup.dim, random);
  const std::vector<float> weights = sample_values(Values::kRandom, 1, setup.num_heads, random);
  const float scale = scale_of(setup.dim);
  const int64_t count = std::min<int64_t>(kKvStep, setup.end - setup.step);
  Operand out = poisoned_output("scores", 1, kKvStep, kKvStep);
  for (Expected& any : out.expected) any = {0, kAnyValue};
  for (int64_t p = 0; p < setup.end; ++p) {
    const std::vector<double> key = slab.store(
        {KvSlab::Plane::kKey, p, 0}, sample_values(Values::kRandom, 1, setup.dim, random));
    if (p < setup.step || p >= setup.step + count) continue;
    double sum = 0, magnitude = 0;
    for (int h = 0; h < setup.num_heads; ++h) {
      double dot = 0, size = 0;
      for (int d = 0; d < setup.dim; ++d) {
        const double product = double{q[static_cast<size_t>(int64_t{h} * setup.dim + d)]} *
                               key[static_cast<size_t>(d)];
        dot += product;
        size += std::fabs(product);
      }
      const double weight = double{weights[static_cast<size_t>(h)]};
      sum += weight * std::max(0.0, dot * double{scale});
      magnitude += std::fabs(weight) * size * double{scale};
    }
    out.expected[static_cast<size_t>(p - setup.step)] = {
        sum, kRound * magnitude * (4 * std::sqrt(setup.dim) + 2 * setup.num_heads + 8)};
  }
  Problem problem;
  problem.name = fmt::format("{} heads of {}, {}, step {} of {}", setup.num_heads, setup.dim,
                             kv_type_name(setup.type), setup.step, setup.end);
  problem.operands = {input_of("q", q), input_of("weights", weights),
                      slab.input(),     input_of("block table", slab.table()),
                      std::move(out),   scratch_of(kAttentionScratchFloats)};
  problem.call = [setup, scale, stride = slab.block_stride()](const KernelRow& row, Places at,
                                                              bool) {
    row.function.index({floats(at[0]), floats(at[1]), setup.num_heads, setup.dim, scale, setup.type,
                        at[2], stride, reinterpret_cast<const int32_t*>(at[3]), setup.step,
                        setup.end, floats(at[4]), floats(at[5])});
  };
  return problem;
}

}  // namespace

void visit_store_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const StoreCase& setup : kStoreCases) {
    if (depth == Depth::kStart && setup.width > 40) continue;
    visit([&] { return store_problem(setup, Values::kRandom); });
    if (depth != Depth::kStart) visit([&] { return store_problem(setup, Values::kRamp); });
  }
}

void visit_latent_problems(const KernelRow&, Depth depth, const Visit& visit) {
  if (depth == Depth::kStart) {
    for (const LatentCase& setup : kLatentStartCases) {
      visit([&] { return latent_problem(setup, Queries::kRandom); });
    }
    return;
  }
  for (const LatentCase& setup : kLatentCases) {
    for (const Queries queries : {Queries::kRandom, Queries::kPeaked, Queries::kZero}) {
      visit([&] { return latent_problem(setup, queries); });
    }
  }
}

void visit_index_problems(const KernelRow&, Depth depth, const Visit& visit) {
  for (const IndexCase& setup : kIndexCases) {
    if (depth == Depth::kStart && setup.dim > 40) continue;
    visit([&] { return index_problem(setup); });
  }
}

}  // namespace headrace::cpu
