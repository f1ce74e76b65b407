#include "model/config/read_xielu.h"

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/config/families.h"

namespace headrace {
namespace {

enum Number : uint8_t { kAlphaP, kAlphaN, kBeta, kEps, kNumNumbers };
// Files hold what softplus makes alpha_p and alpha_n - beta of.
struct NumberRow {
  std::string_view name;
  std::optional<double> fallback;
};
constexpr NumberRow kNumbers[kNumNumbers] = {
    {"alpha_p", {}}, {"alpha_n", {}}, {"beta", 0.5}, {"eps", -1e-6}};
using Numbers = std::array<double, kNumNumbers>;

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

Xielu curve_of(const Numbers& numbers) {
  return {.positive = static_cast<float>(softplus(numbers[kAlphaP])),
          .negative = static_cast<float>(numbers[kBeta] + softplus(numbers[kAlphaN])),
          .beta = static_cast<float>(numbers[kBeta]),
          .eps = static_cast<float>(numbers[kEps])};
}

Error missing(std::string_view name, size_t layer) {
  return make_error(ErrorCode::kNotFound, "layer {} has no {}, which its activation xielu needs",
                    layer, name);
}

// A single number of the layer's activation.
Result<double> stored_number(const Checkpoint& checkpoint, const Family& family, size_t layer,
                             const NumberRow& row) {
  for (const NamePrefix& prefix : name_prefixes(checkpoint.kind(), &family)) {
    const TensorView* tensor =
        checkpoint.find(fmt::format("{}{}{}.mlp.act_fn.{}", prefix.body,
                                    layer_prefix(checkpoint.kind(), &family), layer, row.name));
    if (tensor == nullptr) continue;
    const bool is_float = tensor->dtype == DType::kF32 || tensor->dtype == DType::kBF16 ||
                          tensor->dtype == DType::kF16;
    if (tensor->num_elements() != 1 || !is_float) {
      return make_error(ErrorCode::kInvalidArgument,
                        "tensor {}.mlp.act_fn.{} is {} {}, but must be one number of F32, F16 or "
                        "BF16",
                        layer, row.name, dtype_name(tensor->dtype), tensor->shape_string());
    }
    float value = 0;
    dtype_row(tensor->dtype).dequantise(tensor->data, 1, &value);
    return double{value};
  }
  if (row.fallback) return *row.fallback;
  return missing(row.name, layer);
}

// One for each layer, or one for all.
Result<double> listed_number(const Checkpoint& checkpoint, size_t layer, const NumberRow& row) {
  const auto list = checkpoint.metadata().numbers(fmt::format("xielu.{}", row.name));
  if (!list || list->empty()) {
    if (row.fallback) return *row.fallback;
    return missing(row.name, layer);
  }
  if (list->size() == 1) return list->front();
  if (layer < list->size()) return (*list)[layer];
  return missing(row.name, layer);
}

}  // namespace

Status read_xielu(const Checkpoint& checkpoint, ModelConfig* config) {
  if (config->activation != Activation::kXielu) return {};
  const Family& family = family_named(config->family);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    Numbers numbers{};
    for (size_t n = 0; n < kNumNumbers; ++n) {
      numbers[n] = checkpoint.kind() == CheckpointKind::kGguf
                       ? TRY(listed_number(checkpoint, i, kNumbers[n]))
                       : TRY(stored_number(checkpoint, family, i, kNumbers[n]));
    }
    config->layers[i].xielu = curve_of(numbers);
  }
  return {};
}

}  // namespace headrace
