// An adapter's deltas as kernels read them: A and B as bf16 where they are such numbers, B
// transposed, the magnitudes of directions as factors.
#include <bit>
#include <cmath>
#include <optional>

#include "backend/cpu/adapters.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

bool are_bf16(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return (std::bit_cast<uint32_t>(value) & 0xFFFFu) == 0; });
}

// One after the other in one piece of memory; first counted, then taken.
class AdapterPlaces {
 public:
  explicit AdapterPlaces(std::byte* memory = nullptr) : memory_(memory) {}
  size_t num_bytes() const { return used_; }
  template <typename T>
  T* take(int64_t count) {
    T* place = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += static_cast<size_t>(divide_up(count * int64_t{sizeof(T)}, 64) * 64);
    return place;
  }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

// A matrix of an adapter, by rank and place (input or output).
struct Matrix {
  std::span<const float> values;
  int64_t rank, width;
  bool transposed;  // `values` are [width, rank]

  float at(int64_t j, int64_t i) const {
    return values[static_cast<size_t>(transposed ? i * rank + j : j * width + i)];
  }
};

// Whole numbers of 16 bits for the values of one rank: value = step * number, about.
class Steps {
 public:
  // None where a value so far beyond the others would leave these few bits.
  static std::optional<Steps> of(const Matrix& matrix, int64_t rank) {
    std::vector<float> sizes;
    for (int64_t i = 0; i < matrix.width; ++i) sizes.push_back(std::fabs(matrix.at(rank, i)));
    const auto middle = sizes.begin() + std::ssize(sizes) / 2;
    const float largest = *std::max_element(sizes.begin(), sizes.end());
    std::nth_element(sizes.begin(), middle, sizes.end());
    if (largest == 0) return Steps(1.0f);
    const bool in_range = largest > kSmallestMost && largest < kEndOfActivations;
    if (!in_range || largest > kMostAboveMedian * *middle) return std::nullopt;
    return Steps(largest / kLargest);
  }

  float step() const { return step_; }
  uint16_t number(float value) const {
    return static_cast<uint16_t>(static_cast<int16_t>(std::nearbyint(value / step_)));
  }

 private:
  static constexpr float kLargest = 32767.0f;
  static constexpr float kSmallestMost = 1e-25f;    // of a rank; its steps are normal numbers
  static constexpr float kMostAboveMedian = 32.0f;  // so that the median keeps ten bits

  explicit Steps(float step) : step_(step) {}
  float step_;
};

// A matrix and how it is kept: as bf16 where its values are such numbers; else, where kernels may
// round, as whole numbers of 16 bits where these are near enough; else as it is.
class Kept {
 public:
  Kept() = default;
  // together: ranks that lie in one block.
  Kept(const Matrix& matrix, int64_t together, bool may_round)
      : matrix_(matrix), together_(together) {
    if (are_bf16(matrix.values)) {
      form_ = AdapterForm::kBF16;
    } else if (may_round && make_steps()) {
      form_ = AdapterForm::kInt16;
    }
  }

  // What the kernels' products with the numbers of a rank are to be multiplied with.
  float factor(int64_t rank) const {
    constexpr float kUnit = 65536.0f;
    return steps_.empty() ? 1.0f : steps_[static_cast<size_t>(rank)].step() / kUnit;
  }

  // Without memory only counts.
  AdapterBlocks put(AdapterPlaces* places) const {
    const int64_t blocks = num_adapter_blocks(matrix_.width);
    const int64_t groups = divide_up(matrix_.rank, together_);
    const int64_t count = groups * blocks * together_ * kAdapterBlock;
    auto* out = places->take<uint8_t>(count * adapter_number_bytes(form_));
    if (out != nullptr) write(out);
    return {out, together_, form_};
  }

 private:
  bool make_steps() {
    for (int64_t j = 0; j < matrix_.rank; ++j) {
      const std::optional<Steps> steps = Steps::of(matrix_, j);
      if (!steps) {
        steps_.clear();
        return false;
      }
      steps_.push_back(*steps);
    }
    return true;
  }
  void write(uint8_t* out) const {
    const int64_t blocks = num_adapter_blocks(matrix_.width);
    for (int64_t j = 0; j < matrix_.rank; ++j) {
      for (int64_t i = 0; i < matrix_.width; ++i) {
        const int64_t block = j / together_ * blocks + i / kAdapterBlock;
        const int64_t run = (block * together_ + j % together_) * kAdapterBlock;
        write_number(out, run, i % kAdapterBlock, j, matrix_.at(j, i));
      }
    }
  }
  void write_number(uint8_t* out, int64_t run, int64_t place, int64_t rank, float value) const {
    if (form_ == AdapterForm::kF32) {
      reinterpret_cast<float*>(out)[run + place] = value;
      return;
    }
    constexpr int64_t kHalf = kAdapterBlock / 2;
    const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    reinterpret_cast<uint16_t*>(out)[run + 2 * (place % kHalf) + place / kHalf] =
        form_ == AdapterForm::kBF16 ? upper : steps_[static_cast<size_t>(rank)].number(value);
  }

  Matrix matrix_{};
  int64_t together_ = 1;
  AdapterForm form_ = AdapterForm::kF32;
  std::vector<Steps> steps_;  // by rank; kInt16
};

// Values of a packed weight, some outputs at a time.
class UnpackedRows {
 public:
  explicit UnpackedRows(const CpuWeight& weight) : weight_(weight) {}

  // visit(k, values): of input k, the lanes of the panel that holds `output`.
  template <typename Visit>
  void visit_panel(const Segment& segment, int64_t panel, const Visit& visit) {
    const int64_t num_inputs = weight_.num_inputs();
    const std::span<const int32_t> order = has_integer_codes(layout_info(segment.layout))
                                               ? weight_.input_order()
                                               : std::span<const int32_t>();
    const uint8_t* data = segment.data + static_cast<size_t>(panel) * segment.panel_bytes;
    for (int64_t first = 0; first < num_inputs; first += kSliceInputs) {
      const int64_t count = std::min<int64_t>(kSliceInputs, num_inputs - first);
      segment.unpack({data, num_inputs, first, count, values_});
      for (int64_t k = 0; k < count; ++k) {
        const int64_t input = order.empty() ? first + k : order[static_cast<size_t>(first + k)];
        visit(input, values_ + k * kPanel);
      }
    }
  }

  // visit(segment, panel) for every panel.
  template <typename Visit>
  void for_panels(const Visit& visit) const {
    for (const Segment& segment : weight_.segments()) {
      for (int64_t panel = 0; panel < segment.num_panels; ++panel) visit(segment, panel);
    }
  }

 private:
  const CpuWeight& weight_;
  alignas(64) float values_[kSliceInputs * kPanel];
};

// Norms of the rows of W + scale * B A, of the outputs of the delta.
std::vector<float> row_norms(const CpuWeight& weight, const WeightDelta& delta) {
  std::vector<float> norms(static_cast<size_t>(delta.num_outputs));
  std::vector<float> lanes(static_cast<size_t>(delta.rank * kPanel));  // of B, transposed
  const auto unpacked = std::make_unique<UnpackedRows>(weight);
  unpacked->for_panels([&](const Segment& segment, int64_t panel) {
    const int64_t first = segment.first_output + panel * kPanel - delta.first_output;
    const int64_t count = std::min<int64_t>(kPanel, segment.num_outputs - panel * kPanel);
    if (first + count <= 0 || first >= delta.num_outputs) return;
    std::fill(lanes.begin(), lanes.end(), 0.0f);
    for (int64_t n = std::max<int64_t>(0, -first); n < count && first + n < delta.num_outputs;
         ++n) {
      for (int64_t j = 0; j < delta.rank; ++j) {
        lanes[static_cast<size_t>(j * kPanel + n)] =
            delta.b[static_cast<size_t>((first + n) * delta.rank + j)];
      }
    }
    double sums[kPanel] = {};
    unpacked->visit_panel(segment, panel, [&](int64_t k, const float* values) {
      float changed[kPanel] = {};
      for (int64_t j = 0; j < delta.rank; ++j) {
        const float a = delta.a[static_cast<size_t>(j * weight.num_inputs() + k)];
        for (int n = 0; n < kPanel; ++n) {
          changed[n] += a * lanes[static_cast<size_t>(j * kPanel + n)];
        }
      }
      for (int n = 0; n < kPanel; ++n) {
        const double value = double{values[n]} + double{delta.scale} * double{changed[n]};
        sums[n] += value * value;
      }
    });
    for (int64_t n = std::max<int64_t>(0, -first); n < count && first + n < delta.num_outputs;
         ++n) {
      norms[static_cast<size_t>(first + n)] = static_cast<float>(std::sqrt(sums[n]));
    }
  });
  return norms;
}

// Whether the weight has these values already.
bool equals(const CpuWeight& weight, std::span<const float> values) {
  bool equal = true;
  const auto unpacked = std::make_unique<UnpackedRows>(weight);
  unpacked->for_panels([&](const Segment& segment, int64_t panel) {
    if (!equal) return;
    const int64_t first = segment.first_output + panel * kPanel;
    const int64_t count = std::min<int64_t>(kPanel, segment.num_outputs - panel * kPanel);
    unpacked->visit_panel(segment, panel, [&](int64_t k, const float* lanes) {
      for (int64_t n = 0; n < count; ++n) {
        const auto at = static_cast<size_t>((first + n) * weight.num_inputs() + k);
        equal = equal && values[at] == lanes[n];
      }
    });
  });
  return equal;
}

Result<std::unique_ptr<CpuWeight>> pack_replacement(const CpuWeight& weight,
                                                    std::span<const float> values,
                                                    const KernelSet& kernels) {
  WeightView view;
  view.name = "replacement";
  view.num_outputs = weight.num_outputs();
  view.num_inputs = weight.num_inputs();
  view.values.data = std::as_bytes(values).data();
  view.values.rank = 2;
  view.values.shape = {view.num_outputs, view.num_inputs};
  view.values.num_bytes = values.size_bytes();
  Team alone(1, {0});  // the caller, wherever it runs
  return pack_weight({&view, 1}, WeightRole::kRouter, kernels, alone);
}

// One part of an adapter before it has its place in memory.
struct PreparedPart {
  CpuDelta* owner = nullptr;
  DeltaPart part;
  Kept a, b;  // without A, where that is `columns`
  std::vector<float> low_factors, columns, factors, bias;

  // Without memory only counts.
  void put(AdapterPlaces* places) {
    if (part.rank > 0) {
      if (columns.empty()) part.a = a.put(places);
      part.b = b.put(places);
    }
    part.low_factors = put_floats(low_factors, places);
    part.columns = put_floats(columns, places);
    part.factors = put_floats(factors, places);
    part.bias = put_floats(bias, places);
  }
  static const float* put_floats(std::span<const float> values, AdapterPlaces* places) {
    if (values.empty()) return nullptr;
    auto* out = places->take<float>(std::ssize(values));
    if (out != nullptr) std::copy(values.begin(), values.end(), out);
    return out;
  }
};

// Whether the weight's own products round what they multiply to 16 bits or fewer.
bool rounds_activations(const CpuWeight& weight) {
  return weight.takes(ActivationType::kInt16) || weight.takes(ActivationType::kInt8) ||
         weight.takes(ActivationType::kFixed) || weight.takes(ActivationType::kBF16Codes);
}

void prepare_products(const CpuWeight& weight, const WeightDelta& delta, bool may_round,
                      PreparedPart* out) {
  const Matrix b{delta.b, delta.rank, delta.of_table ? weight.num_inputs() : delta.num_outputs,
                 true};
  out->b = Kept(b, delta.rank, may_round);
  if (delta.of_table) {  // a token's numbers lie together
    const Matrix a{delta.a, delta.rank, weight.num_outputs(), false};
    for (int64_t i = 0; i < a.width; ++i) {
      for (int64_t j = 0; j < a.rank; ++j) out->columns.push_back(a.at(j, i));
    }
  } else {
    out->a = Kept({delta.a, delta.rank, weight.num_inputs(), false}, kAdapterRanks, may_round);
  }
  for (int64_t j = 0; j < delta.rank; ++j) {
    const double factor = double{out->a.factor(j)} * double{out->b.factor(j)};
    out->low_factors.push_back(static_cast<float>(double{delta.scale} * factor));
  }
}

PreparedPart prepare_part(const CpuWeight& weight, const WeightDelta& delta, bool may_round,
                          CpuDelta* owner) {
  PreparedPart out;
  out.owner = owner;
  out.part.first_output = delta.first_output;
  out.part.num_outputs = delta.num_outputs;
  out.part.rank = delta.rank;
  if (delta.rank > 0) prepare_products(weight, delta, may_round, &out);
  if (!delta.magnitudes.empty()) {
    out.factors = row_norms(weight, delta);
    for (size_t n = 0; n < out.factors.size(); ++n) {
      out.factors[n] = delta.magnitudes[n] / out.factors[n];
    }
  }
  out.bias.assign(delta.bias.begin(), delta.bias.end());
  for (size_t n = 0; delta.replaced_bias && n < out.bias.size(); ++n) {
    out.bias[n] -= raw(delta.replaced_bias)[n];
  }
  return out;
}

void check_delta(const WeightDelta& delta) {
  CHECK(delta.weight != nullptr && delta.weight->num_experts() == 1, "a weight for a delta");
  const int64_t outputs = delta.weight->num_outputs(), inputs = delta.weight->num_inputs();
  const int64_t a_width = delta.of_table ? outputs : inputs;
  const int64_t b_height = delta.of_table ? inputs : delta.num_outputs;
  CHECK(delta.first_output >= 0 && delta.num_outputs > 0 &&
            delta.first_output + delta.num_outputs <= outputs && delta.rank >= 0,
        "outputs {} from {} of {}, rank {}", delta.num_outputs, delta.first_output, outputs,
        delta.rank);
  CHECK(std::ssize(delta.a) == delta.rank * a_width && std::ssize(delta.b) == delta.rank * b_height,
        "a of {}, b of {} for rank {}", delta.a.size(), delta.b.size(), delta.rank);
  const auto is_of_outputs = [&](std::span<const float> values) {
    return values.empty() || std::ssize(values) == delta.num_outputs;
  };
  CHECK(is_of_outputs(delta.magnitudes) && is_of_outputs(delta.bias), "magnitudes or bias");
  CHECK(!delta.of_table || (delta.magnitudes.empty() && delta.bias.empty()), "of a table");
  CHECK(delta.replacement.empty() || std::ssize(delta.replacement) == outputs * inputs,
        "a replacement of {}", delta.replacement.size());
}

}  // namespace

Result<std::unique_ptr<CpuAdapter>> pack_cpu_adapter(std::span<const WeightDelta> deltas,
                                                     const KernelSet& kernels) {
  auto adapter = std::make_unique<CpuAdapter>();
  std::vector<PreparedPart> prepared;
  AdapterPlaces counted;
  for (const WeightDelta& delta : deltas) {
    check_delta(delta);
    const auto& weight = static_cast<const CpuWeight&>(*delta.weight);
    CpuDelta& own = (delta.of_table ? adapter->tables_ : adapter->products_)[delta.weight];
    if (!delta.replacement.empty() && !equals(weight, delta.replacement)) {
      own.replacement = TRY(pack_replacement(weight, delta.replacement, kernels));
      adapter->num_bytes_ += own.replacement->num_bytes();
    }
    if (delta.rank == 0 && delta.magnitudes.empty() && delta.bias.empty()) continue;
    prepared.push_back(prepare_part(weight, delta, rounds_activations(weight), &own));
    prepared.back().put(&counted);
  }
  if (counted.num_bytes() == 0) return adapter;
  adapter->memory_ = TRY(Buffer::allocate(counted.num_bytes()));
  adapter->num_bytes_ += adapter->memory_.size();
  AdapterPlaces places(adapter->memory_.data());
  for (PreparedPart& own : prepared) {
    own.put(&places);
    own.part.first_low = own.owner->rank;
    own.owner->rank += own.part.rank;
    own.owner->parts.push_back(own.part);
  }
  return adapter;
}

}  // namespace headrace::cpu
