#include "backend/cpu/kernels/pack.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels/block_fields.h"
#include "backend/cpu/kernels/layouts.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

struct DenseLayout {
  DType dtype;
  Layout layout;
};
// Storage formats of single-tensor weights that have a layout; f8 values fit bf16 exactly.
constexpr DenseLayout kDenseLayouts[] = {
    {DType::kF32, Layout::kF32},     {DType::kF16, Layout::kF16},
    {DType::kBF16, Layout::kBF16},   {DType::kF8E4M3, Layout::kBF16},
    {DType::kF8E5M2, Layout::kBF16}, {DType::kQ8_0, Layout::kQ8_0},
    {DType::kQ4_0, Layout::kQ4_0},   {DType::kQ4_1, Layout::kQ4_1},
    {DType::kQ5_0, Layout::kQ5_0},   {DType::kQ5_1, Layout::kQ5_1},
    {DType::kQ4K, Layout::kQ4K},     {DType::kQ5K, Layout::kQ5K},
    {DType::kQ6K, Layout::kQ6K},     {DType::kQ2K, Layout::kQ2K},
    {DType::kQ3K, Layout::kQ3K},     {DType::kIQ4NL, Layout::kIQ4NL},
    {DType::kIQ4XS, Layout::kIQ4XS}, {DType::kMXFP4, Layout::kMXFP4},
};

int64_t panels_of(int64_t num_outputs) { return (num_outputs + kPanel - 1) / kPanel; }

void put_half(uint8_t* at, int lane, uint16_t bits) { std::memcpy(at + 2 * lane, &bits, 2); }

// The plane rule of kernels.h, for one code of one lane. Words start as zero.
void put_code(uint8_t* plane, int index, int bits, int lane, uint32_t code) {
  const int per_word = 32 / bits;
  const int i = index % per_word;
  uint8_t* place = plane + (index / per_word) * 64 + 4 * lane;
  uint32_t word;
  std::memcpy(&word, place, sizeof(word));
  word |= code << (8 * (i % 4) + bits * (i / 4));
  std::memcpy(place, &word, sizeof(word));
}

// Splits a code over its low and high planes.
void put_split(uint8_t* low, int low_index, int low_bits, uint8_t* high, int high_index,
               int high_bits, int lane, uint32_t code) {
  put_code(low, low_index, low_bits, lane, code & ((1u << low_bits) - 1u));
  if (high_bits > 0) put_code(high, high_index, high_bits, lane, code >> low_bits);
}

void put_block(const LayoutInfo& info, const BlockFields& fields, int lane, uint8_t* chunk) {
  const ChunkOffsets at = chunk_offsets(info);
  if (info.scale_bytes == 1) {
    chunk[lane] = static_cast<uint8_t>(fields.scale);
  } else {
    put_half(chunk, lane, fields.scale);
  }
  if (info.min_bytes != 0) put_half(chunk + at.minimum, lane, fields.minimum);
  for (int s = 0; s < info.num_sub_blocks; ++s) {
    put_split(chunk + at.sub_low, s, info.sub_low_bits, chunk + at.sub_high, s, info.sub_high_bits,
              lane, fields.sub_scales[s]);
    if (info.sub_has_min == 0) continue;
    put_split(chunk + at.sub_min, s, info.sub_low_bits, chunk + at.sub_high,
              info.num_sub_blocks + s, info.sub_high_bits, lane, fields.sub_mins[s]);
  }
  for (int k = 0; k < info.block_inputs; ++k) {
    put_split(chunk + at.low, k, info.low_bits, chunk + at.high, k, info.high_bits, lane,
              fields.codes[k]);
  }
}

void pack_codes_row(const WeightView& weight, int64_t row, const Segment& segment, uint8_t* panel) {
  const LayoutInfo& info = layout_info(segment.layout);
  const DTypeRow& format = dtype_row(weight.values.dtype);
  const ReadBlock read = block_reader(weight.values.dtype);
  const int64_t num_blocks = weight.num_inputs / info.block_inputs;
  const std::byte* blocks = weight.values.data + static_cast<size_t>(weight.stored_row(row)) *
                                                     static_cast<size_t>(num_blocks) *
                                                     format.block_bytes;
  const int lane = static_cast<int>(row % kPanel);
  for (int64_t b = 0; b < num_blocks; ++b) {
    BlockFields fields;
    read(blocks + static_cast<size_t>(b) * format.block_bytes, &fields);
    put_block(info, fields, lane, panel + static_cast<size_t>(b) * info.chunk_bytes);
  }
}

// Lane of a 16-bit layout: two inputs in a word.
void put_pair_value(uint8_t* panel, int64_t k, int lane, uint16_t bits) {
  std::memcpy(panel + (k / 2) * 64 + 4 * lane + 2 * (k % 2), &bits, sizeof(bits));
}

void pack_f16_row(const WeightView& weight, int64_t row, uint8_t* panel) {
  const std::byte* source = weight.values.data + static_cast<size_t>(weight.stored_row(row)) *
                                                     static_cast<size_t>(weight.num_inputs) * 2;
  for (int64_t k = 0; k < weight.num_inputs; ++k) {
    uint16_t bits;
    std::memcpy(&bits, source + 2 * k, sizeof(bits));
    put_pair_value(panel, k, static_cast<int>(row % kPanel), bits);
  }
}

void pack_float_row(const WeightView& weight, int64_t row, Layout layout, float* values,
                    uint8_t* panel) {
  dequantise_rows(weight, row, 1, values);
  const int lane = static_cast<int>(row % kPanel);
  for (int64_t k = 0; k < weight.num_inputs; ++k) {
    if (layout == Layout::kBF16) {
      put_pair_value(panel, k, lane, float_to_bf16(values[k]));
    } else {
      std::memcpy(panel + k * 64 + 4 * lane, &values[k], sizeof(float));
    }
  }
}

// Panels first_panel.. of a segment; `values` holds one row.
void pack_panel(const WeightView& weight, const Segment& segment, int64_t panel_idx, float* values,
                uint8_t* panel) {
  const DType dtype = weight.values.dtype;
  const int64_t end = std::min(weight.num_outputs, (panel_idx + 1) * kPanel);
  for (int64_t row = panel_idx * kPanel; row < end; ++row) {
    if (layout_info(segment.layout).low_bits > 0) {
      pack_codes_row(weight, row, segment, panel);
    } else if (segment.layout == Layout::kF16 ||
               (segment.layout == Layout::kBF16 && dtype == DType::kBF16)) {
      pack_f16_row(weight, row, panel);
    } else {
      pack_float_row(weight, row, segment.layout, values, panel);
    }
  }
}

void pack_segment(const WeightView& weight, const Segment& segment, uint8_t* data, Team& team) {
  constexpr int64_t kPanelsPerItem = 8;
  const int64_t num_items = (segment.num_panels + kPanelsPerItem - 1) / kPanelsPerItem;
  team.run(num_items, [&](int64_t item, int /*member*/) {
    std::vector<float> values(static_cast<size_t>(weight.num_inputs));
    const int64_t end = std::min(segment.num_panels, (item + 1) * kPanelsPerItem);
    for (int64_t p = item * kPanelsPerItem; p < end; ++p) {
      pack_panel(weight, segment, p, values.data(),
                 data + static_cast<size_t>(p) * segment.panel_bytes);
    }
  });
}

Segment plan_segment(const WeightView& part, int64_t first_output) {
  Segment segment;
  segment.layout = layout_for(part);
  segment.first_output = first_output;
  segment.num_outputs = part.num_outputs;
  segment.num_panels = panels_of(part.num_outputs);
  segment.panel_bytes = panel_bytes(segment.layout, part.num_inputs);
  return segment;
}

constexpr int64_t kMaxInputs = int64_t{1} << 24;
constexpr int64_t kMaxOutputs = int64_t{1} << 31;

Status check_parts(std::span<const WeightView> parts, WeightRole role) {
  CHECK(!parts.empty() && (role != WeightRole::kGateUp || parts.size() == 2), "{} parts",
        parts.size());
  for (const WeightView& part : parts) {
    CHECK(part.num_inputs == parts[0].num_inputs, "{}: {} inputs, expected {}", part.name,
          part.num_inputs, parts[0].num_inputs);
    CHECK(role != WeightRole::kGateUp || part.num_outputs == parts[0].num_outputs, "{}", part.name);
    if (part.num_inputs > 0 && part.num_inputs <= kMaxInputs && part.num_outputs >= 0 &&
        part.num_outputs <= kMaxOutputs) {
      continue;
    }
    return make_error(ErrorCode::kUnsupported,
                      "weight '{}' is [{}, {}]; this back end takes up to [{}, {}]", part.name,
                      part.num_outputs, part.num_inputs, kMaxOutputs, kMaxInputs);
  }
  return {};
}

}  // namespace

CpuWeight::CpuWeight(std::vector<Segment> segments, int64_t num_inputs, WeightRole role,
                     Buffer memory)
    : segments_(std::move(segments)),
      num_inputs_(num_inputs),
      num_outputs_(0),
      num_bytes_(0),
      role_(role),
      memory_(std::move(memory)) {
  for (const Segment& segment : segments_) {
    num_outputs_ += segment.num_outputs;
    num_bytes_ += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
    const std::string name = layout_info(segment.layout).name;
    if (layout_name_.find(name) != std::string::npos) continue;
    layout_name_ += layout_name_.empty() ? name : "+" + name;
  }
}

bool CpuWeight::needs_quantised_input() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const Segment& segment) {
    return segment.matmul.activation() != ActivationType::kF32;
  });
}

Layout layout_for(const WeightView& weight) {
  if (weight.scheme != WeightScheme::kDense || !weight.scales.empty() ||
      !weight.global_scale.empty()) {
    return Layout::kF32;
  }
  for (const DenseLayout& row : kDenseLayouts) {
    if (row.dtype != weight.values.dtype) continue;
    // A row that ends inside a block cannot keep its codes.
    const bool whole = weight.num_inputs % layout_info(row.layout).block_inputs == 0;
    return whole || layout_info(row.layout).low_bits == 0 ? row.layout : Layout::kF32;
  }
  return Layout::kF32;
}

std::string_view dtype_of_layout(Layout layout) {
  for (const DenseLayout& row : kDenseLayouts) {
    if (row.layout == layout) return dtype_name(row.dtype);
  }
  CHECK(false, "layout {} has no format", static_cast<int>(layout));
}

size_t packed_weight_bytes(std::span<const WeightView> parts) {
  size_t num_bytes = 0;
  for (const WeightView& part : parts) {
    const Segment segment = plan_segment(part, 0);
    num_bytes += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
  }
  return num_bytes;
}

Result<std::unique_ptr<CpuWeight>> pack_weight(std::span<const WeightView> parts, WeightRole role,
                                               const KernelSet& kernels, Team& team) {
  TRY(check_parts(parts, role));
  Buffer memory = TRY(Buffer::allocate(packed_weight_bytes(parts)));
  std::vector<Segment> segments;
  size_t offset = 0;
  int64_t first_output = 0;
  for (const WeightView& part : parts) {
    Segment segment = plan_segment(part, first_output);
    auto* data = reinterpret_cast<uint8_t*>(memory.data()) + offset;
    const auto layout = static_cast<size_t>(segment.layout);
    segment.data = data;
    segment.matmul = kernels.matmul[layout];
    segment.unpack = kernels.unpack[layout]->function.unpack;
    pack_segment(part, segment, data, team);
    offset += static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
    first_output += part.num_outputs;
    segments.push_back(segment);
  }
  return std::make_unique<CpuWeight>(std::move(segments), parts[0].num_inputs, role,
                                     std::move(memory));
}

}  // namespace headrace::cpu
