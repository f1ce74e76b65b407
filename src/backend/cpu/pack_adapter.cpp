// An adapter's deltas as kernels read them: A and B as bf16 where they are such numbers, B
// transposed, the magnitudes of directions as factors.
#include <bit>
#include <cmath>

#include "backend/cpu/adapters.h"
#include "backend/cpu/kernels/layouts.h"
#include "backend/device_access.h"
#include "base/numeric.h"

namespace headrace::cpu {
namespace {

constexpr int64_t kSlack = 16;  // numbers that may be read behind the last

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

// A matrix of an adapter and how it is kept.
struct Kept {
  std::span<const float> values;
  int64_t rows, columns;
  bool transposed;  // `values` are [columns, rows]

  // Rows of no power of two apart, which would share the sets of a cache.
  int64_t stride() const {
    const int64_t padded = divide_up(columns, kSlack) * kSlack;
    return padded % 512 == 0 ? padded + kSlack : padded;
  }

  // Without memory only counts.
  AdapterRows put(AdapterPlaces* places) const {
    const int64_t count = rows * stride() + kSlack;
    if (are_bf16(values)) {
      auto* out = places->take<uint16_t>(count);
      write(out, [](float value) {
        return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      });
      return {out, stride(), true};
    }
    auto* out = places->take<float>(count);
    write(out, [](float value) { return value; });
    return {out, stride(), false};
  }

  template <typename T, typename Convert>
  void write(T* out, const Convert& convert) const {
    if (out == nullptr) return;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = transposed ? c * rows + r : r * columns + c;
        out[r * stride() + c] = convert(values[static_cast<size_t>(at)]);
      }
    }
  }
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

// What a delta needs beside A and B.
struct Extras {
  std::vector<float> factors, bias;
};

Extras extras_of(const CpuWeight& weight, const WeightDelta& delta) {
  Extras extras;
  if (!delta.magnitudes.empty()) {
    extras.factors = row_norms(weight, delta);
    for (size_t n = 0; n < extras.factors.size(); ++n) {
      extras.factors[n] = delta.magnitudes[n] / extras.factors[n];
    }
  }
  extras.bias.assign(delta.bias.begin(), delta.bias.end());
  for (size_t n = 0; delta.replaced_bias && n < extras.bias.size(); ++n) {
    extras.bias[n] -= raw(delta.replaced_bias)[n];
  }
  return extras;
}

const float* put_floats(std::span<const float> values, AdapterPlaces* places) {
  if (values.empty()) return nullptr;
  auto* out = places->take<float>(std::ssize(values));
  if (out != nullptr) std::copy(values.begin(), values.end(), out);
  return out;
}

// Without memory only counts.
DeltaPart make_part(const CpuWeight& weight, const WeightDelta& delta, const Extras& extras,
                    AdapterPlaces* places) {
  DeltaPart part;
  part.first_output = delta.first_output;
  part.num_outputs = delta.num_outputs;
  part.rank = delta.rank;
  part.scale = delta.scale;
  if (delta.rank > 0) {
    const int64_t inputs = delta.of_table ? weight.num_outputs() : weight.num_inputs();
    const int64_t outputs = delta.of_table ? weight.num_inputs() : delta.num_outputs;
    // Of a table, a token's numbers lie together.
    part.a = delta.of_table ? Kept{delta.a, inputs, delta.rank, true}.put(places)
                            : Kept{delta.a, delta.rank, inputs, false}.put(places);
    part.b = Kept{delta.b, delta.rank, outputs, true}.put(places);
  }
  part.factors = put_floats(extras.factors, places);
  part.bias = put_floats(extras.bias, places);
  return part;
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
  for (const WeightDelta& delta : deltas) {
    check_delta(delta);
    const auto& weight = static_cast<const CpuWeight&>(*delta.weight);
    CpuDelta& own = (delta.of_table ? adapter->tables_ : adapter->products_)[delta.weight];
    if (!delta.replacement.empty() && !equals(weight, delta.replacement)) {
      own.replacement = TRY(pack_replacement(weight, delta.replacement, kernels));
      adapter->num_bytes_ += own.replacement->num_bytes();
    }
    const Extras extras = extras_of(weight, delta);
    AdapterPlaces counted;
    make_part(weight, delta, extras, &counted);
    if (counted.num_bytes() == 0) continue;
    Buffer memory = TRY(Buffer::allocate(counted.num_bytes()));
    AdapterPlaces places(memory.data());
    DeltaPart part = make_part(weight, delta, extras, &places);
    part.first_low = own.rank;
    own.rank += part.rank;
    own.parts.push_back(part);
    adapter->num_bytes_ += memory.size();
    adapter->memory_.push_back(std::move(memory));
  }
  return adapter;
}

}  // namespace headrace::cpu
