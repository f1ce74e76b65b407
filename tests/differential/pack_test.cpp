// Packing against the layout's definition, code by code: every format, odd shapes, permuted rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/block_fields.h"
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "backend/cpu/team/topology.h"
#include "base/numeric.h"
#include "kernel_cases.h"

namespace headrace {
namespace {

using cpu::LayoutInfo;

// The plane rule of kernels.h, word for word.
void put_code(uint8_t* plane, int index, int bits, int lane, uint32_t code) {
  const int per_word = 32 / bits;
  const int i = index % per_word;
  uint8_t* place = plane + (index / per_word) * 64 + 4 * lane;
  uint32_t word;
  std::memcpy(&word, place, sizeof(word));
  word |= (code & ((1u << bits) - 1u)) << (8 * (i % 4) + bits * (i / 4));
  std::memcpy(place, &word, sizeof(word));
}

void put_sub_scales(const LayoutInfo& info, const cpu::BlockFields& fields, int lane,
                    uint8_t* chunk) {
  const cpu::ChunkOffsets at = cpu::chunk_offsets(info);
  for (int s = 0; s < info.num_sub_blocks; ++s) {
    put_code(chunk + at.sub_low, s, info.sub_low_bits, lane, fields.sub_scales[s]);
    if (info.sub_has_min != 0) {
      put_code(chunk + at.sub_min, s, info.sub_low_bits, lane, fields.sub_mins[s]);
    }
    if (info.sub_high_bits == 0) continue;
    put_code(chunk + at.sub_high, s, info.sub_high_bits, lane,
             fields.sub_scales[s] >> info.sub_low_bits);
    if (info.sub_has_min == 0) continue;
    put_code(chunk + at.sub_high, info.num_sub_blocks + s, info.sub_high_bits, lane,
             fields.sub_mins[s] >> info.sub_low_bits);
  }
}

void put_chunk(const LayoutInfo& info, const cpu::BlockFields& fields, int lane, uint8_t* chunk) {
  const cpu::ChunkOffsets at = cpu::chunk_offsets(info);
  std::memcpy(chunk + lane * info.scale_bytes, &fields.scale, info.scale_bytes);
  std::memcpy(chunk + at.minimum + lane * info.min_bytes, &fields.minimum, info.min_bytes);
  put_sub_scales(info, fields, lane, chunk);
  for (int k = 0; k < info.block_inputs; ++k) {
    put_code(chunk + at.low, k, info.low_bits, lane, fields.codes[k]);
    if (info.high_bits == 0) continue;
    put_code(chunk + at.high, k, info.high_bits, lane, fields.codes[k] >> info.low_bits);
  }
}

void put_value(cpu::Layout layout, int64_t k, int lane, float value, uint8_t* panel) {
  if (layout == cpu::Layout::kF32) {
    std::memcpy(panel + k * 64 + 4 * lane, &value, sizeof(value));
    return;
  }
  const uint16_t bits = layout == cpu::Layout::kF16 ? float_to_f16(value) : float_to_bf16(value);
  std::memcpy(panel + (k / 2) * 64 + 4 * lane + 2 * (k % 2), &bits, sizeof(bits));
}

// Plain 8-bit floats: the scale is 1.
void put_float_codes(const TestWeight& weight, const LayoutInfo& info, int lane, size_t stored,
                     uint8_t* panel) {
  const cpu::ChunkOffsets at = cpu::chunk_offsets(info);
  const float one = 1.0f;
  for (int64_t k = 0; k < weight.view.num_inputs; ++k) {
    uint8_t* chunk = panel + k / info.block_inputs * info.chunk_bytes;
    const size_t i = stored * static_cast<size_t>(weight.view.num_inputs) + static_cast<size_t>(k);
    std::memcpy(chunk + 4 * lane, &one, sizeof(one));
    put_code(chunk + at.low, static_cast<int>(k % info.block_inputs), info.low_bits, lane,
             std::to_integer<uint32_t>(weight.bytes[i]));
  }
}

std::vector<uint8_t> pack_by_definition(const TestWeight& weight, const cpu::Segment& segment) {
  const WeightView& view = weight.view;
  const LayoutInfo& info = cpu::layout_info(segment.layout);
  const DTypeRow& format = dtype_row(view.values.dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(segment.num_panels) * segment.panel_bytes);
  for (int64_t row = 0; row < view.num_outputs; ++row) {
    uint8_t* panel = bytes.data() + static_cast<size_t>(row / 16) * segment.panel_bytes;
    const int lane = static_cast<int>(row % 16);
    const auto stored = static_cast<size_t>(view.stored_row(row));
    if (info.low_bits == 0) {
      for (int64_t k = 0; k < view.num_inputs; ++k) {
        const auto i = stored * static_cast<size_t>(view.num_inputs) + static_cast<size_t>(k);
        put_value(segment.layout, k, lane, weight.values[i], panel);
      }
      continue;
    }
    if (cpu::has_float_codes(info)) {
      put_float_codes(weight, info, lane, stored, panel);
      continue;
    }
    const auto num_blocks = static_cast<size_t>(view.num_inputs / info.block_inputs);
    for (size_t b = 0; b < num_blocks; ++b) {
      cpu::BlockFields fields;
      cpu::block_reader(view.values.dtype)(
          view.values.data + (stored * num_blocks + b) * format.block_bytes, &fields);
      put_chunk(info, fields, lane, panel + b * info.chunk_bytes);
    }
  }
  return bytes;
}

struct Shape {
  int64_t outputs, blocks;
};

// Around a panel of 16 outputs and an item of 8 panels; K in whole blocks, odd where blocks are 1.
constexpr Shape kShapes[] = {{1, 1},  {15, 3},  {16, 2},  {17, 1}, {37, 5},
                             {64, 4}, {129, 3}, {257, 1}, {3, 71}};

int check_format(DType dtype, const Shape& shape, bool permuted, cpu::Team& team) {
  Random random(static_cast<uint32_t>(shape.outputs * 1000 + shape.blocks));
  const auto inputs = shape.blocks * static_cast<int64_t>(dtype_row(dtype).block_elements);
  const auto weight = random_weight(dtype, shape.outputs, inputs, random);
  if (permuted) {
    for (int32_t i = 0; i < shape.outputs; ++i) weight->view.row_order.push_back(i);
    std::shuffle(weight->view.row_order.begin(), weight->view.row_order.end(), random);
  }
  const uint32_t available = cpu::detect_isa();
  const cpu::KernelSet kernels =
      cpu::select_kernels(**cpu::select_unit("reference", available), available);
  const auto packed = cpu::pack_weight({&weight->view, 1}, WeightRole::kLinear, kernels, team);
  if (!packed.ok()) return 0;
  const cpu::Segment& segment = (*packed)->segments()[0];
  const std::vector<uint8_t> expected = pack_by_definition(*weight, segment);
  EXPECT_EQ((*packed)->num_bytes(), expected.size());
  EXPECT_EQ(std::memcmp(segment.data, expected.data(), expected.size()), 0)
      << dtype_name(dtype) << " [" << shape.outputs << ", " << inputs << "]";
  return 1;
}

TEST(Pack, EveryFormatFollowsTheDefinition) {
  cpu::Team team(2, cpu::usable_cores());
  int num_cases = 0;
  for (const DType dtype : tested_dtypes()) {
    for (const Shape& shape : kShapes) {
      num_cases += check_format(dtype, shape, false, team);
      num_cases += check_format(dtype, shape, true, team);
    }
  }
  EXPECT_EQ(num_cases, static_cast<int>(tested_dtypes().size() * std::size(kShapes) * 2));
}

}  // namespace
}  // namespace headrace
