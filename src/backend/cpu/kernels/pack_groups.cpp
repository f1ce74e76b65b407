#include "backend/cpu/kernels/pack_groups.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/plane.h"
#include "base/check.h"
#include "base/numeric.h"
#include "base/quote.h"
#include "checkpoint/weight_rows.h"

namespace headrace::cpu {
namespace {

int64_t group_at(const WeightView& weight, std::span<const int32_t> order, int64_t position) {
  return group_of(weight, order.empty() ? position : order[static_cast<size_t>(position)]);
}

// What divides every position at which the group changes; 0 if it never does.
int64_t common_group_inputs(const WeightView& weight, std::span<const int32_t> order) {
  if (weight.group_index.empty()) {
    return weight.group_size < weight.num_inputs ? weight.group_size : 0;
  }
  int64_t common = 0;
  int64_t group = group_at(weight, order, 0);
  for (int64_t i = 1; i < weight.num_inputs; ++i) {
    const int64_t next = group_at(weight, order, i);
    if (next != group) common = std::gcd(common, i);
    group = next;
  }
  return common;
}

Layout integer_layout(const WeightView& weight, std::span<const int32_t> order) {
  if (weight.num_inputs % kActivationBlock != 0) return Layout::kF32;
  const int bits = weight.scheme == WeightScheme::kCtInt8 ? 8 : weight.bits;
  const bool needs_wide = weight.scales.dtype != DType::kF16 && weight.scales.dtype != DType::kBF16;
  const int64_t common = common_group_inputs(weight, order);
  for (const LayoutInfo& info : kLayouts) {  // the first that fits serves
    if (info.zero_bytes == 0 || info.low_bits < bits) continue;
    if (needs_wide && info.scale_bytes != sizeof(float)) continue;
    if (common % info.block_inputs == 0) return info.layout;
    const bool smaller_exists = info.block_inputs > kActivationBlock;
    if (!smaller_exists) return Layout::kF32;
  }
  return Layout::kF32;
}

// Kernels scale an 8-bit float's bits, read as a float32, by a power of two that goes with the
// scale: it must leave room.
constexpr float kMaxFloat8Scale = 0x1p7f;

Layout float8_layout(const WeightView& weight, std::span<const int32_t> /*order*/) {
  const Layout layout = weight.values.dtype == DType::kF8E4M3 ? Layout::kE4M3 : Layout::kE5M2;
  if (weight.scheme == WeightScheme::kDense) return layout;
  if (!weight.group_index.empty() ||
      common_group_inputs(weight, {}) % layout_info(layout).block_inputs != 0) {
    return Layout::kF32;
  }
  const DTypeRow& row = dtype_row(weight.scales.dtype);
  std::vector<float> scales(static_cast<size_t>(weight.scales.num_elements()));
  row.dequantise(weight.scales.data, weight.scales.num_elements(), scales.data());
  const bool fits = std::none_of(scales.begin(), scales.end(),
                                 [](float s) { return std::fabs(s) > kMaxFloat8Scale; });
  return fits ? layout : Layout::kF32;
}

Layout mxfp4_layout(const WeightView& weight, std::span<const int32_t> /*order*/) {
  return weight.group_index.empty() ? Layout::kMXFP4 : Layout::kF32;
}

// Twice the global scale, as the table of FP4 values is doubled.
float nvfp4_divisor(const WeightView& weight) {
  float scale;
  std::memcpy(&scale, weight.global_scale.data, sizeof(scale));
  return 2 * scale;
}

// The quotients of all e4m3 scales must be normal numbers.
constexpr float kMaxNvfp4Divisor = 0x1p100f;

Layout nvfp4_layout(const WeightView& weight, std::span<const int32_t> /*order*/) {
  const float divisor = std::fabs(nvfp4_divisor(weight));
  const bool fits = divisor < kMaxNvfp4Divisor && divisor > 1 / kMaxNvfp4Divisor;
  const bool whole = weight.num_inputs % kActivationBlock == 0 && weight.group_index.empty();
  return fits && whole ? Layout::kNVFP4 : Layout::kF32;
}

// ---- packing ----

struct LaneChunk {
  const LayoutInfo& info;
  const ChunkOffsets& at;
  int lane;
  uint8_t* chunk;
  int count;             // inputs in it
  const uint8_t* codes;  // zero up to a multiple of kActivationBlock
};

void put_lane_codes(const LaneChunk& to) {
  kPutPlane[to.info.low_bits](to.codes, to.count, 0, to.chunk + to.at.low + 4 * to.lane);
}

void put_float_scale(const LaneChunk& to, float scale) {
  std::memcpy(to.chunk + 4 * to.lane, &scale, sizeof(scale));
}

void put_scale_and_zero(const LaneChunk& to, float scale, float zero) {
  auto zero_byte = static_cast<uint8_t>(zero);
  if (to.info.split_scale == 0) {
    put_float_scale(to, scale);
  } else {
    const uint32_t bits = float_to_bits(scale);
    CHECK((bits & 0xFFFu) == 0 && zero_byte < 16, "scale {} and zero point {}", scale, zero);
    const auto top = static_cast<uint16_t>(bits >> 16);
    std::memcpy(to.chunk + 2 * to.lane, &top, sizeof(top));
    zero_byte = static_cast<uint8_t>(zero_byte | ((bits >> 12 & 15u) << 4));
  }
  to.chunk[to.at.zero + to.lane] = zero_byte;
}

bool is_number(DType dtype, uint8_t code) {
  return dtype == DType::kF8E4M3 ? (code & 0x7F) != 0x7F : (code & 0x7F) < 0x7C;
}

void put_float8(const WeightView& weight, const LaneChunk& to, float scale) {
  const bool numbers = std::all_of(to.codes, to.codes + to.count, [&](uint8_t code) {
    return is_number(weight.values.dtype, code);
  });
  put_float_scale(to, numbers ? scale : std::numeric_limits<float>::quiet_NaN());
}

const uint8_t* scale_bytes_of(const WeightView& weight, int64_t row) {
  const int64_t num_groups = weight.num_inputs / weight.group_size;
  return reinterpret_cast<const uint8_t*>(weight.scales.data) + weight.stored_row(row) * num_groups;
}

void put_nvfp4_scales(const WeightView& weight, int64_t row, int64_t first, const LaneChunk& to) {
  uint8_t subs[16] = {};
  std::memcpy(subs, scale_bytes_of(weight, row) + first / weight.group_size,
              static_cast<size_t>(to.count / weight.group_size));
  kPutPlane[8](subs, to.info.num_sub_blocks, 0, to.chunk + to.at.sub_low + 4 * to.lane);
  // In the lanes beyond the weight's outputs as well: 0 / 0 would not be the zero they hold.
  const float divisor = nvfp4_divisor(weight);
  for (int n = 0; n < kPanel; ++n) std::memcpy(to.chunk + 4 * n, &divisor, sizeof(divisor));
}

// Scales and zero points of a row, where the layout does not keep the file's bytes of them.
void read_factors(const WeightView& weight, const LayoutInfo& info, int64_t row,
                  GroupScratch& scratch) {
  const bool is_dense = weight.scheme == WeightScheme::kDense;
  const auto num_groups = is_dense ? size_t{1} : static_cast<size_t>(num_scale_groups(weight));
  scratch.scales.assign(num_groups, 1.0f);
  scratch.zeros.assign(num_groups, 0.0f);
  if (is_dense || info.scale_bytes == 1 || info.sub_float != 0) return;
  read_group_factors(weight, row, scratch.scales.data(), scratch.zeros.data());
}

struct ChunkPlace {
  int64_t row;
  int64_t first_input;
  size_t group;
};

void put_factors(const WeightView& weight, const ChunkPlace& place, const GroupScratch& scratch,
                 const LaneChunk& to) {
  if (to.info.scale_bytes == 1) {
    to.chunk[to.lane] = scale_bytes_of(weight, place.row)[place.first_input / weight.group_size];
  } else if (to.info.sub_float != 0) {
    put_nvfp4_scales(weight, place.row, place.first_input, to);
  } else if (has_float_codes(to.info)) {
    put_float8(weight, to, scratch.scales[place.group]);
  } else {
    put_scale_and_zero(to, scratch.scales[place.group], scratch.zeros[place.group]);
  }
}

// The codes of a row as packed: in order, zero from K to a multiple of kActivationBlock.
const uint8_t* ordered_codes(std::span<const int32_t> order, const uint8_t* codes,
                             int64_t num_inputs, std::vector<uint8_t>& ordered) {
  const int64_t padded = (num_inputs + kActivationBlock - 1) / kActivationBlock * kActivationBlock;
  if (order.empty() && padded == num_inputs) return codes;
  ordered.assign(static_cast<size_t>(padded), 0);
  for (int64_t i = 0; i < num_inputs; ++i) {
    ordered[static_cast<size_t>(i)] = codes[order.empty() ? i : order[static_cast<size_t>(i)]];
  }
  return ordered.data();
}

}  // namespace

std::vector<int32_t> input_order(const WeightView& weight) {
  if (weight.scheme == WeightScheme::kDense || weight.group_index.empty()) return {};
  const auto num_groups = static_cast<size_t>(num_scale_groups(weight));
  std::vector<int32_t> next(num_groups + 1);  // position of the next input of each group
  std::vector<size_t> groups;                 // read once: both passes must see the same
  for (int64_t k = 0; k < weight.num_inputs; ++k) {
    groups.push_back(static_cast<size_t>(group_of(weight, k)));
    ++next[groups.back() + 1];
  }
  if (std::is_sorted(groups.begin(), groups.end())) return {};
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<int32_t> order(static_cast<size_t>(weight.num_inputs));
  for (int32_t k = 0; k < weight.num_inputs; ++k) {
    int32_t& place = next[groups[static_cast<size_t>(k)]];
    order[static_cast<size_t>(place++)] = k;
  }
  return order;
}

Layout group_layout(const WeightView& weight, std::span<const int32_t> order) {
  using Choose = Layout (*)(const WeightView&, std::span<const int32_t>);
  constexpr auto kNone = [](const WeightView&, std::span<const int32_t>) { return Layout::kF32; };
  static constexpr Choose kChoose[] = {
      kNone,         integer_layout, integer_layout, integer_layout, integer_layout,
      float8_layout, float8_layout,  mxfp4_layout,   nvfp4_layout,   kNone};
  static_assert(std::size(kChoose) == static_cast<size_t>(WeightScheme::kCount));
  const bool plain_float8 =
      weight.values.dtype == DType::kF8E4M3 || weight.values.dtype == DType::kF8E5M2;
  if (weight.scheme == WeightScheme::kDense && plain_float8) return float8_layout(weight, order);
  return kChoose[static_cast<size_t>(weight.scheme)](weight, order);
}

Status check_group_scales(const WeightView& weight, Layout layout) {
  if (layout != Layout::kMXFP4 || weight.scheme != WeightScheme::kMxfp4) return {};
  const auto num_bytes = static_cast<size_t>(weight.num_inputs / weight.group_size);
  for (int64_t row = 0; row < weight.num_outputs; ++row) {
    if (std::memchr(scale_bytes_of(weight, row), 0xFF, num_bytes) == nullptr) continue;
    return make_error(ErrorCode::kCorrupt,
                      "weight {} has a scale that is no number (e8m0 255) in row {}; get the file "
                      "again or quantise it anew",
                      quote(weight.name), row);
  }
  return {};
}

void pack_groups(const WeightView& weight, Layout layout, std::span<const int32_t> order,
                 const GroupRows& rows, GroupScratch& scratch, uint8_t* panel) {
  const LayoutInfo& info = layout_info(layout);
  const ChunkOffsets at = chunk_offsets(info);
  scratch.codes.resize(static_cast<size_t>(weight.num_inputs * rows.lanes));
  read_codes(weight, rows.first_row, rows.lanes, scratch.codes.data());
  for (int lane = 0; lane < rows.lanes; ++lane) {
    const int64_t row = rows.first_row + lane;
    read_factors(weight, info, row, scratch);
    const uint8_t* codes = ordered_codes(order, scratch.codes.data() + lane * weight.num_inputs,
                                         weight.num_inputs, scratch.ordered);
    uint8_t* chunk = panel;
    for (int64_t first = 0; first < weight.num_inputs; first += info.block_inputs) {
      const auto count = std::min<int64_t>(info.block_inputs, weight.num_inputs - first);
      const LaneChunk to{info,         at, rows.first_lane + lane, chunk, static_cast<int>(count),
                         codes + first};
      put_lane_codes(to);
      const int64_t group = scratch.scales.size() > 1 ? group_at(weight, order, first) : 0;
      put_factors(weight, {row, first, static_cast<size_t>(group)}, scratch, to);
      chunk += info.chunk_bytes;
    }
  }
}

}  // namespace headrace::cpu
