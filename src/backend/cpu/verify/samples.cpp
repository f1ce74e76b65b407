#include "backend/cpu/verify/samples.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/block_fields.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/cpu/kernels/pack.h"
#include "base/numeric.h"
#include "checkpoint/weight_rows.h"

namespace headrace::cpu {
namespace {

// Byte offsets of the f16 factors in a block of the format, found by what its reader reads there.
std::vector<size_t> half_offsets(DType dtype) {
  const ReadBlock read = block_reader(dtype);
  if (read == nullptr) return {};
  constexpr uint16_t kMark = 0xABCD;
  std::vector<size_t> offsets;
  for (size_t offset = 0; offset + sizeof(kMark) <= dtype_row(dtype).block_bytes; ++offset) {
    std::vector<std::byte> block(dtype_row(dtype).block_bytes);
    std::memcpy(block.data() + offset, &kMark, sizeof(kMark));
    BlockFields fields;
    read(block.data(), &fields);
    if (fields.scale == kMark || fields.minimum == kMark) offsets.push_back(offset);
  }
  return offsets;
}

void put_half(std::byte* at, float value) {
  const uint16_t bits = float_to_f16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

// One value of a format that holds plain numbers.
void put_value(DType dtype, std::byte* at, float value) {
  if (dtype == DType::kF32) std::memcpy(at, &value, sizeof(value));
  if (dtype == DType::kF16) put_half(at, value);
  if (dtype == DType::kBF16) {
    const uint16_t bits = float_to_bf16(value);
    std::memcpy(at, &bits, sizeof(bits));
  }
  if (dtype == DType::kF64) {
    const double wide = value;
    std::memcpy(at, &wide, sizeof(wide));
  }
}

float plain_value(WeightSample sample, Random& random) {
  constexpr float kExtremes[] = {60000.0f, -60000.0f, 0x1p-14f, -0x1p-15f, 0x1p-24f, 0.0f, -0.0f};
  if (sample == WeightSample::kWhole) return static_cast<float>(static_cast<int>(random() % 7) - 3);
  if (sample == WeightSample::kExtreme) return kExtremes[random() % std::size(kExtremes)];
  if (sample == WeightSample::kNan && random() % 1024 == 0) return NAN;
  return 0.1f * random.normal();
}

std::byte exponent_of(WeightSample sample, Random& random) {
  constexpr uint8_t kExtremes[] = {0, 1, 2, 60, 127, 190};
  if (sample == WeightSample::kWhole) return std::byte{128};
  if (sample == WeightSample::kExtreme)
    return std::byte{kExtremes[random() % std::size(kExtremes)]};
  return static_cast<std::byte>(118 + random() % 8);
}

// A normal value, without its sign, where five deviations are the format's largest number.
uint32_t typical_float8(bool is_e5m2, Random& random) {
  const int mantissa_bits = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : 7;
  const float largest = is_e5m2 ? 57344.0f : 448.0f;
  const float value = std::min(std::abs(random.normal()) / 5, 1.0f) * largest;
  int exponent = 0;
  const float half = std::frexp(value, &exponent);  // value = 2 half 2^(exponent - 1)
  const int field = exponent - 1 + bias;
  if (field <= 0) return static_cast<uint32_t>(std::ldexp(value, bias - 1 + mantissa_bits));
  const auto mantissa = static_cast<uint32_t>(std::ldexp(2 * half - 1, mantissa_bits));
  return static_cast<uint32_t>(field) << mantissa_bits | mantissa;
}

// Any number, or 0 to 3 with a sign.
std::byte float8_value(DType dtype, WeightSample sample, Random& random) {
  constexpr uint8_t kWhole[2][4] = {{0, 0x38, 0x40, 0x44}, {0, 0x3C, 0x40, 0x42}};
  const bool is_e5m2 = dtype == DType::kF8E5M2;
  const uint32_t sign = random() & 0x80u;
  if (sample == WeightSample::kTypical) {
    return static_cast<std::byte>(sign | typical_float8(is_e5m2, random));
  }
  const uint32_t value = sample == WeightSample::kWhole ? kWhole[is_e5m2 ? 1 : 0][random() % 4]
                                                        : random() % (is_e5m2 ? 0x7C : 0x7F);
  return static_cast<std::byte>(sign | value);
}

void fill_block(DType dtype, std::span<const size_t> factors, WeightSample sample, std::byte* block,
                Random& random) {
  const DTypeRow& row = dtype_row(dtype);
  for (size_t i = 0; i < row.block_bytes; i += sizeof(uint32_t)) {
    const uint32_t bits = random();
    std::memcpy(block + i, &bits, std::min(sizeof(bits), row.block_bytes - i));
  }
  constexpr uint8_t kFills[] = {0x00, 0x7F, 0x80, 0xF7, 0xFF};
  if (sample == WeightSample::kFilled && row.block_elements > 1) {
    std::memset(block, kFills[random() % std::size(kFills)], row.block_bytes);
  }
  for (const size_t offset : factors) put_half(block + offset, sample_factor(sample, random));
  if (dtype == DType::kMXFP4) block[0] = exponent_of(sample, random);
  if (dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2) {
    block[0] = float8_value(dtype, sample, random);
  } else if (row.block_elements == 1) {
    put_value(dtype, block, plain_value(sample, random));
  }
}

// The storage format that `layout` keeps.
DType storage_of(Layout layout) {
  for (const DTypeRow& row : dtype_rows()) {
    if (row.name == layout_info(layout).format) return row.dtype;
  }
  CHECK(false, "layout {} has no format", static_cast<int>(layout));
}

float one_value(Values values, int64_t place, int64_t width, Random& random) {
  switch (values) {
    case Values::kRamp:
      return static_cast<float>(place + 1) / static_cast<float>(width);
    case Values::kAlternating:
      return place % 2 == 0 ? 1.25f : -1.25f;
    case Values::kLarge:
      return random.normal() * 0x1p40f;
    case Values::kSmall:
      return random.normal() * 0x1p-40f;
    case Values::kDenormal:
      return bits_to_float((random() & 0x80000000u) | (random() % 0x00800000u));
    case Values::kMixed:
      return std::ldexp(random.normal(), static_cast<int>(random() % 49) - 24);
    case Values::kHuge:
      return random() % 8 == 0 ? -FLT_MAX : random.normal() * 0x1p124f;
    case Values::kVanishing:
      return random.normal() * kSmallestActivation /
             static_cast<float>(1 + place / kActivationBlock % 4);
    case Values::kTies:  // the largest of a block is 1: steps are 2^-14, or 1 / 127
      if (place % kActivationBlock == 0) return 1.0f;
      return std::ldexp(static_cast<float>(2 * (random() % 16384) + 1), -15);
    case Values::kZeroOne:
      return static_cast<float>(random() % 2);
    case Values::kWhole:
      return static_cast<float>(static_cast<int>(random() % 5) - 2);
    default:
      return random.normal();
  }
}

}  // namespace

Random::result_type Random::operator()() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

float Random::normal() {
  // Four bytes, each of deviation 73.9, and a fraction that fills the gaps between whole numbers.
  const uint32_t bits = (*this)();
  const uint32_t sum = (bits & 0xFF) + (bits >> 8 & 0xFF) + (bits >> 16 & 0xFF) + (bits >> 24);
  const float fraction = static_cast<float>((*this)() >> 8) * 0x1p-24f;
  return (static_cast<float>(sum) - 510.5f + fraction) * (1.0f / 147.8f);
}

std::string_view values_name(Values values) {
  constexpr std::string_view kNames[] = {
      "random",   "one hot", "ramp",      "alternating", "large",   "small",
      "denormal", "mixed",   "sizes",     "zero or one", "whole",   "nan",
      "infinite", "huge",    "vanishing", "ties",        "constant"};
  static_assert(std::size(kNames) == static_cast<size_t>(Values::kCount));
  return kNames[static_cast<size_t>(values)];
}

std::vector<float> sample_values(Values values, int64_t rows, int64_t width, Random& random) {
  std::vector<float> out(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r) {
    float* row = out.data() + r * width;
    if (values == Values::kOneHot) {
      if (width == 0) continue;
      const int64_t place = r == 0   ? width - 1
                            : r == 1 ? 0
                                     : static_cast<int64_t>(random()) % width;
      row[place] = 1.0f;
      continue;
    }
    for (int64_t i = 0; i < width; ++i) row[i] = one_value(values, i, width, random);
    if (values == Values::kSizes) {
      const auto exponent = static_cast<int>(r * 23 % 185) - 80;
      for (int64_t i = 0; i < width; ++i) row[i] = std::ldexp(row[i], exponent);
    }
    if (values == Values::kConstant) {
      constexpr float kConstants[] = {1.0f, -1.0f, 1.9f, -1.9921f};
      std::fill(row, row + width, kConstants[r % 4]);
    }
    // With all payload bits set, so that rounding it as a number would overflow into the sign.
    if (values == Values::kNan && r % 2 == 1) {
      row[random() % static_cast<uint32_t>(width)] = bits_to_float(0x7FFFFFFFu);
    }
    if (values != Values::kInfinite || r % 2 == 0) continue;
    row[random() % static_cast<uint32_t>(width)] = r % 4 == 1 ? INFINITY : -INFINITY;
  }
  return out;
}

namespace {

// The nearest multiple of 256, ties upwards, in units of 256; the rest is then in [-128, 127].
int high_term(int code) { return static_cast<int>(std::floor((code + 128) / 256.0)); }

int64_t slices_of(int64_t num_inputs) { return (num_inputs + kSliceInputs - 1) / kSliceInputs; }

// Rows in tiles lie row by row of all slices, others slice by slice of all rows.
int64_t stride_of(ActivationType type, int64_t num_rows, int64_t num_inputs) {
  const bool in_tiles = type == ActivationType::kFixed || type == ActivationType::kBF16Codes;
  return (in_tiles ? slices_of(num_inputs) : num_rows) * activation_record_bytes(type);
}

// Of records, all poison.
std::vector<uint8_t> poison(ActivationType type, int64_t num_rows, int64_t num_inputs) {
  const int64_t num_bytes = slices_of(num_inputs) * num_rows * activation_record_bytes(type);
  return std::vector<uint8_t>(static_cast<size_t>(num_bytes), 0xFF);
}

// Zeros from K to the end of the last block of a product.
std::vector<uint8_t> fixed_records(const QuantisedSample& sample) {
  const int64_t end = (sample.num_inputs + kFixedBlock - 1) / kFixedBlock * kFixedBlock;
  std::vector<uint8_t> bytes = poison(sample.type, sample.num_rows, sample.num_inputs);
  for (int64_t m = 0; m < sample.num_rows; ++m) {
    const TilePlaces places(sample.type, m, sample.num_rows, sample.num_inputs);
    int16_t sums[2] = {};
    for (int64_t k = 0; k < end; ++k) {
      const auto at =
          static_cast<size_t>(m * sample.num_inputs + std::min(k, sample.num_inputs - 1));
      const int code = k < sample.num_inputs ? sample.codes[at] : 0;
      const int terms[2] = {high_term(code), code - 256 * high_term(code)};
      for (int term = 0; term < 2; ++term) {
        bytes[static_cast<size_t>(places.line(k / kFixedBlock * 2 + term) + k % kFixedBlock)] =
            static_cast<uint8_t>(terms[term]);
        sums[term] = static_cast<int16_t>((k % 16 == 0 ? 0 : sums[term]) + terms[term]);
      }
      const int64_t slice = k / kSliceInputs;
      std::memcpy(bytes.data() + places.sums(slice) + k % kSliceInputs / 16 * 4, sums,
                  sizeof(sums));
      const float unit = sample.scales[at / kActivationBlock];
      std::memcpy(bytes.data() + places.unit(slice), &unit, sizeof(unit));
    }
  }
  return bytes;
}

}  // namespace

TilePlaces::TilePlaces(ActivationType type, int64_t row, int64_t num_rows, int64_t num_inputs)
    : num_slices_(slices_of(num_inputs)),
      in_tile_(row % 16),
      height_(std::min<int64_t>(16, num_rows - (row - in_tile_))),
      tile_((row - in_tile_) * num_slices_ * activation_record_bytes(type)) {}

int64_t QuantisedSample::stride() const { return stride_of(type, num_rows, num_inputs); }
int64_t RoundedSample::stride() const { return stride_of(type, num_rows, num_inputs); }

std::vector<uint8_t> QuantisedSample::records() const {
  if (type == ActivationType::kFixed) return fixed_records(*this);
  const int64_t record_bytes = activation_record_bytes(type);
  const int64_t code_bytes = activation_code_bytes(type);
  std::vector<uint8_t> bytes = poison(type, num_rows, num_inputs);
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t k = 0; k < num_inputs; k += kActivationBlock) {
      const auto first = static_cast<size_t>(m * num_inputs + k);
      const int64_t block = k % kSliceInputs / kActivationBlock;
      uint8_t* record = bytes.data() + k / kSliceInputs * stride() + m * record_bytes;
      int halves[2] = {};
      for (size_t i = 0; i < kActivationBlock; ++i) {
        const int code = codes[first + i];
        halves[i / 16] += code;
        uint8_t* at = record + block * code_bytes + i;
        const int high = high_term(code);
        at[0] = static_cast<uint8_t>(type == ActivationType::kInt16 ? high : code);
        if (type == ActivationType::kInt16) at[32] = static_cast<uint8_t>(code - 256 * high);
      }
      const float scale = scales[first / kActivationBlock];
      const int sum = halves[0] + halves[1];
      BlockFactors factors;
      std::memset(&factors, 0xFF, sizeof(factors));
      factors.scale = scale;
      factors.sum = scale * static_cast<float>(sum);
      factors.minus_sum = -sum;
      for (int half = 0; half < 2; ++half) {
        factors.half_sums[half] = scale * static_cast<float>(halves[half]);
        factors.minus_half_sums[half] = -halves[half];
      }
      std::memcpy(record + kSliceBlocks * code_bytes + block * int64_t{sizeof(factors)}, &factors,
                  sizeof(factors));
    }
  }
  return bytes;
}

namespace {

bool holds_numbers(ActivationType type, std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [type](float v) {
    return std::isfinite(v) && (type == ActivationType::kInt8 || std::fabs(v) < kEndOfActivations);
  });
}

// The inputs whose NaN spoils block `first` of x: the block, or its slice or segment of the row.
std::span<const float> group_of(ActivationType type, std::span<const float> x, size_t first,
                                int64_t num_inputs) {
  if (type == ActivationType::kInt8) return x.subspan(first, kActivationBlock);
  const auto width = static_cast<size_t>(num_inputs);
  const std::span<const float> row = x.subspan(first - first % width, width);
  const auto in_row = static_cast<int64_t>(first % width);
  int64_t begin = in_row / kSliceInputs * kSliceInputs;
  int64_t count = std::min<int64_t>(kSliceInputs, num_inputs - begin);
  if (type == ActivationType::kFixed) {
    const int64_t last = num_fixed_segments(num_inputs) - 1;
    begin = std::min(in_row / kFixedSegment, last) * kFixedSegment;
    count = fixed_segment_inputs(begin, num_inputs);
  }
  return row.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace

QuantisedSample quantise_sample(ActivationType type, std::span<const float> x, int64_t num_rows,
                                int64_t num_inputs) {
  QuantisedSample sample{type, num_rows, num_inputs, std::vector<int32_t>(x.size()), {}};
  for (size_t first = 0; first < x.size(); first += kActivationBlock) {
    const std::span<const float> group = group_of(type, x, first, num_inputs);
    const bool is_fixed = type == ActivationType::kFixed;
    float largest = 0.0f;
    for (const float v : is_fixed ? group : x.subspan(first, kActivationBlock)) {
      largest = std::max(largest, std::fabs(v));
    }
    if (!holds_numbers(type, group)) {
      sample.scales.push_back(NAN);
      continue;
    }
    if (largest < kSmallestActivation) {
      sample.scales.push_back(type == ActivationType::kInt16 ? 1.0f : 0.0f);
      continue;
    }
    const float limit = is_fixed ? kFixedActivationLimit : kInt8Limit;
    float scale = largest / limit;
    float factor = limit / largest;
    if (type == ActivationType::kInt16) {
      const int exponent = std::ilogb(largest * kInt16Margin);
      scale = std::ldexp(1.0f, exponent - kInt16Bits);
      factor = std::ldexp(1.0f, kInt16Bits - exponent);
    }
    sample.scales.push_back(scale);
    for (size_t i = first; i < first + kActivationBlock; ++i) {
      sample.codes[i] = static_cast<int32_t>(std::nearbyint(x[i] * factor));
    }
  }
  return sample;
}

QuantisedSample whole_sample(ActivationType type, std::span<const float> x, int64_t num_rows,
                             int64_t num_inputs) {
  // Fixed-point numbers use their bits, as they always do: sums are rounded to some of their units.
  const float factor = type == ActivationType::kFixed ? 0x1p13f : 1.0f;
  QuantisedSample sample{type, num_rows, num_inputs, std::vector<int32_t>(x.size()), {}};
  for (size_t i = 0; i < x.size(); ++i) sample.codes[i] = static_cast<int32_t>(x[i] * factor);
  sample.scales.assign(x.size() / kActivationBlock, 1 / factor);
  return sample;
}

namespace {

// To 8 significant bits, ties to even; denormals keep the steps of the smallest normal numbers.
float round_to_bf16(float v) {
  if (v == 0 || !std::isfinite(v)) return v;
  const double step = std::ldexp(1.0, std::max(std::ilogb(v), -126) - 7);
  const double rounded = std::nearbyint(v / step) * step;
  return std::fabs(rounded) > 0x1.fep127 ? std::copysign(INFINITY, v)
                                         : std::copysign(static_cast<float>(rounded), v);
}

}  // namespace

double RoundedSample::value(int64_t row, int64_t input) const {
  double sum = 0;
  for (int term = 0; term < num_terms(type); ++term) {
    const float v = terms[term][static_cast<size_t>(row * num_inputs + input)];
    if (!(std::fabs(v) < 0x1p-126f)) sum += double{v};
  }
  return sum;
}

int64_t RoundedSample::block_at(int64_t row, int64_t k) const {
  if (type == ActivationType::kBF16Codes) {
    return TilePlaces(type, row, num_rows, num_inputs).line(k / kActivationBlock);
  }
  return k / kSliceInputs * stride() + row * activation_record_bytes(type) +
         k % kSliceInputs / kActivationBlock * activation_code_bytes(type);
}

std::vector<uint8_t> RoundedSample::records() const {
  const int64_t end = divide_up(num_inputs, activation_unit(type)) * activation_unit(type);
  const bool of_codes = type == ActivationType::kBF16Codes;
  std::vector<uint8_t> bytes = poison(type, num_rows, num_inputs);
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t k = 0; k < end; ++k) {
      // Two of each four change places: the bits of a number below four.
      const int64_t place = of_codes ? (k & ~3) | (k & 1) << 1 | (k & 2) >> 1 : k;
      uint8_t* block = bytes.data() + block_at(m, k);
      for (int term = 0; term < num_terms(type); ++term) {
        const float v = k < num_inputs ? terms[term][static_cast<size_t>(m * num_inputs + k)] : 0;
        const auto bits = static_cast<uint16_t>(float_to_bits(v) >> 16);
        std::memcpy(block + 2 * (term * kActivationBlock + place % kActivationBlock), &bits, 2);
      }
    }
  }
  return bytes;
}

RoundedSample round_sample(ActivationType type, std::span<const float> x, int64_t num_rows,
                           int64_t num_inputs) {
  RoundedSample sample{type, num_rows, num_inputs, {}};
  for (const float v : x) {
    const float first = round_to_bf16(v);
    const float rest = v - first;
    sample.terms[0].push_back(first);
    sample.terms[1].push_back(std::isfinite(rest) ? round_to_bf16(rest) : 0.0f);
  }
  return sample;
}

float sample_factor(WeightSample sample, Random& random) {
  constexpr float kExtremes[] = {65504.0f, -65504.0f, 0x1p-24f, -0x1p-24f, 0x1p-14f, 0.0f, 1.0f};
  if (sample == WeightSample::kWhole) return 1.0f;
  if (sample == WeightSample::kExtreme) return kExtremes[random() % std::size(kExtremes)];
  if (sample == WeightSample::kNan && random() % 64 == 0) return NAN;
  return 0.01f * random.normal();
}

std::string_view weight_sample_name(WeightSample sample) {
  constexpr std::string_view kNames[] = {"random", "extreme", "whole", "nan", "filled", "typical"};
  return kNames[static_cast<size_t>(sample)];
}

int64_t whole_inputs(Layout layout, int64_t inputs) {
  if (is_of_groups(layout_info(layout))) return group_inputs(layout, inputs);
  const LayoutInfo& info = layout_info(layout);
  if (info.low_bits == 0 || has_float_codes(info)) return inputs;
  return (inputs + info.block_inputs - 1) / info.block_inputs * info.block_inputs;
}

std::unique_ptr<SampleWeight> sample_weight(DType dtype, WeightSample sample, int64_t num_outputs,
                                            int64_t num_inputs, Random& random) {
  const DTypeRow& row = dtype_row(dtype);
  auto weight = std::make_unique<SampleWeight>();
  const auto num_blocks = static_cast<size_t>(num_outputs * num_inputs) / row.block_elements;
  weight->bytes.resize(num_blocks * row.block_bytes);
  const std::vector<size_t> factors = half_offsets(dtype);
  for (size_t i = 0; i < weight->bytes.size(); i += row.block_bytes) {
    fill_block(dtype, factors, sample, weight->bytes.data() + i, random);
  }
  WeightView& view = weight->view;
  view.name = "sample";
  view.num_outputs = num_outputs;
  view.num_inputs = num_inputs;
  view.values.data = weight->bytes.data();
  view.values.dtype = dtype;
  view.values.rank = 2;
  view.values.shape = {num_outputs, num_inputs};
  view.values.num_bytes = weight->bytes.size();
  weight->values.resize(static_cast<size_t>(num_outputs * num_inputs));
  dequantise_rows(view, 0, num_outputs, weight->values.data());
  return weight;
}

std::unique_ptr<SampleWeight> sample_weight(Layout layout, WeightSample sample, int64_t num_outputs,
                                            int64_t num_inputs, Random& random) {
  if (is_of_groups(layout_info(layout))) {
    return sample_group_weight(layout, sample, num_outputs, num_inputs, random);
  }
  return sample_weight(storage_of(layout), sample, num_outputs, num_inputs, random);
}

PackedSample pack_sample(const SampleWeight& weight, Layout layout) {
  static const KernelSet kernels = select_kernels(*all_units().back(), 0);
  Team team(1, {0});
  const auto packed = pack_weight({&weight.view, 1}, WeightRole::kLinear, kernels, team);
  CHECK(packed.ok(), "{}", packed.error().message);
  const Segment& segment = (*packed)->segments()[0];
  CHECK(segment.layout == layout, "packed as {}", (*packed)->layout());
  const size_t num_bytes = static_cast<size_t>(segment.num_panels) * segment.panel_bytes;
  return {{segment.data, segment.data + num_bytes}, segment.panel_bytes, segment.num_panels};
}

}  // namespace headrace::cpu
