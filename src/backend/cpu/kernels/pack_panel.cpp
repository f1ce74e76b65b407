#include "backend/cpu/kernels/pack_panel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/kernels/block_fields.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/plane.h"
#include "base/numeric.h"
#include "checkpoint/weight_rows.h"

namespace headrace::cpu {
namespace {

struct Planes {
  int low_bits, high_bits;
  uint8_t *low, *high;  // of one lane
};

// Splits codes over their low and high planes; none of either is no plane.
void put_codes(const Planes& planes, const uint8_t* codes, int count) {
  if (count == 0) return;
  kPutPlane[planes.low_bits](codes, count, 0, planes.low);
  if (planes.high_bits > 0) kPutPlane[planes.high_bits](codes, count, planes.low_bits, planes.high);
}

void put_half(uint8_t* at, int lane, uint16_t bits) { std::memcpy(at + 2 * lane, &bits, 2); }

void put_sub_scales(const LayoutInfo& info, const ChunkOffsets& at, const BlockFields& fields,
                    uint8_t* words) {
  const int count = info.num_sub_blocks;
  if (count == 0) return;
  kPutPlane[info.sub_low_bits](fields.sub_scales, count, 0, words + at.sub_low);
  const bool has_min = info.sub_has_min != 0;
  if (has_min) kPutPlane[info.sub_low_bits](fields.sub_mins, count, 0, words + at.sub_min);
  if (info.sub_high_bits == 0) return;
  // The high plane is shared: scales, then minima.
  std::array<uint8_t, 64> both{};
  std::memcpy(both.data(), fields.sub_scales, static_cast<size_t>(count));
  if (has_min) std::memcpy(both.data() + count, fields.sub_mins, static_cast<size_t>(count));
  kPutPlane[info.sub_high_bits](both.data(), has_min ? 2 * count : count, info.sub_low_bits,
                                words + at.sub_high);
}

void put_block(const LayoutInfo& info, const ChunkOffsets& at, const BlockFields& fields, int lane,
               uint8_t* chunk) {
  if (info.scale_bytes == 1) {
    chunk[lane] = static_cast<uint8_t>(fields.scale);
  } else {
    put_half(chunk, lane, fields.scale);
  }
  if (info.min_bytes != 0) put_half(chunk + at.minimum, lane, fields.minimum);
  uint8_t* words = chunk + 4 * lane;
  put_sub_scales(info, at, fields, words);
  put_codes({info.low_bits, info.high_bits, words + at.low, words + at.high}, fields.codes,
            info.block_inputs);
}

int num_lanes(const WeightView& weight, int64_t panel_idx) {
  return static_cast<int>(std::min<int64_t>(kPanel, weight.num_outputs - panel_idx * kPanel));
}

void pack_codes(const WeightView& weight, const LayoutInfo& info, int64_t panel_idx,
                uint8_t* panel) {
  const ChunkOffsets at = chunk_offsets(info);
  const size_t block_bytes = dtype_row(weight.values.dtype).block_bytes;
  const ReadBlock read = block_reader(weight.values.dtype);
  const auto num_blocks = static_cast<size_t>(weight.num_inputs / info.block_inputs);
  const int lanes = num_lanes(weight, panel_idx);
  std::array<const std::byte*, kPanel> rows{};
  for (int lane = 0; lane < lanes; ++lane) {
    const auto row = static_cast<size_t>(weight.stored_row(panel_idx * kPanel + lane));
    rows[static_cast<size_t>(lane)] = weight.values.data + row * num_blocks * block_bytes;
  }
  BlockFields fields;  // a format fills the same fields in each block; the others stay zero
  for (size_t b = 0; b < num_blocks; ++b) {
    for (int lane = 0; lane < lanes; ++lane) {
      read(rows[static_cast<size_t>(lane)] + b * block_bytes, &fields);
      put_block(info, at, fields, lane, panel + b * info.chunk_bytes);
    }
  }
}

struct RowBytes {
  const std::byte* data;
  size_t num_bytes;
};

// Rows as they are, four bytes of each lane at a time. The last word of a row may be part empty.
void put_rows(std::span<const RowBytes> rows, uint8_t* panel) {
  constexpr size_t kRunBytes = 256;  // of each row: what is being written stays in the L1 cache
  for (size_t first = 0; first < rows[0].num_bytes; first += kRunBytes) {
    for (size_t lane = 0; lane < rows.size(); ++lane) {
      const size_t end = std::min(rows[lane].num_bytes, first + kRunBytes);
      uint8_t* at = panel + first / 4 * kWordStride + 4 * lane;
      for (size_t i = first; i < end; i += 4, at += kWordStride) {
        std::memcpy(at, rows[lane].data + i, std::min<size_t>(4, end - i));
      }
    }
  }
}

// Lanes of a panel whose values are not side by side in the file.
void pack_transposed_halves(const WeightView& weight, int64_t first_row, int lanes,
                            PanelScratch& scratch, uint8_t* lane_words) {
  const auto inputs = static_cast<size_t>(weight.num_inputs);
  scratch.halves.resize(inputs * static_cast<size_t>(lanes));
  read_halves(weight, first_row, lanes, scratch.halves.data());
  std::array<RowBytes, kPanel> rows{};
  for (size_t lane = 0; lane < static_cast<size_t>(lanes); ++lane) {
    rows[lane] = {reinterpret_cast<const std::byte*>(scratch.halves.data() + lane * inputs),
                  inputs * 2};
  }
  put_rows({rows.data(), static_cast<size_t>(lanes)}, lane_words);
}

void pack_halves(const WeightView& weight, int64_t panel_idx, uint8_t* panel) {
  const size_t row_bytes = static_cast<size_t>(weight.num_inputs) * 2;
  std::array<RowBytes, kPanel> rows{};
  const auto lanes = static_cast<size_t>(num_lanes(weight, panel_idx));
  for (size_t lane = 0; lane < lanes; ++lane) {
    const int64_t row = weight.stored_row(panel_idx * kPanel + static_cast<int64_t>(lane));
    rows[lane] = {weight.values.data + static_cast<size_t>(row) * row_bytes, row_bytes};
  }
  put_rows({rows.data(), lanes}, panel);
}

// Through float32, `lanes` rows.
void pack_floats(const WeightView& weight, int64_t first_row, int lanes, PanelScratch& scratch,
                 uint8_t* lane_words) {
  const auto inputs = static_cast<size_t>(weight.num_inputs);
  scratch.values.resize(inputs * static_cast<size_t>(lanes));
  dequantise_rows(weight, first_row, lanes, scratch.values.data());
  const std::byte* data = reinterpret_cast<const std::byte*>(scratch.values.data());
  const size_t row_bytes = inputs * sizeof(float);
  std::array<RowBytes, kPanel> rows{};
  for (size_t lane = 0; lane < static_cast<size_t>(lanes); ++lane) {
    rows[lane] = {data + lane * row_bytes, row_bytes};
  }
  put_rows({rows.data(), static_cast<size_t>(lanes)}, lane_words);
}

// Longer rows go one by one, so that the scratch of a hostile shape stays small.
constexpr int64_t kMaxPanelInputs = int64_t{1} << 17;

}  // namespace

void pack_panel(const WeightView& weight, Layout layout, std::span<const int32_t> order,
                int64_t panel_idx, PanelScratch& scratch, uint8_t* panel) {
  const LayoutInfo& info = layout_info(layout);
  const DType dtype = weight.values.dtype;
  const bool is_coded = info.low_bits > 0;
  if (is_coded && block_reader(dtype) != nullptr) return pack_codes(weight, info, panel_idx, panel);
  const bool is_half = layout == Layout::kF16 || layout == Layout::kBF16;
  const bool is_transposed = weight.scheme == WeightScheme::kDenseTransposed;
  if (is_half && !is_transposed) return pack_halves(weight, panel_idx, panel);
  const int lanes = num_lanes(weight, panel_idx);
  const int lanes_at_once = weight.num_inputs <= kMaxPanelInputs ? kPanel : 1;
  for (int lane = 0; lane < lanes; lane += lanes_at_once) {
    const int64_t first_row = panel_idx * kPanel + lane;
    const int count = std::min(lanes_at_once, lanes - lane);
    if (is_half) {
      pack_transposed_halves(weight, first_row, count, scratch, panel + 4 * lane);
    } else if (is_coded) {
      pack_groups(weight, layout, order, {first_row, count, lane}, scratch.groups, panel);
    } else {
      pack_floats(weight, first_row, count, scratch, panel + 4 * lane);
    }
  }
}

}  // namespace headrace::cpu
