#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/quote.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/weight_rows.h"

// Which tensors make up a weight. The first layout whose leading tensor is there is the weight's.

namespace headrace {
namespace {

constexpr int kWordBits = 32;

// What the layout functions work on.
struct Search {
  const Checkpoint& checkpoint;
  const Quantisation& quantisation;
  std::string_view base_name;

  // The tensor BASE + suffix; an empty view if there is none.
  TensorView tensor(std::string_view suffix) const {
    const TensorView* found = checkpoint.find(std::string(base_name) + std::string(suffix));
    return found == nullptr ? TensorView{} : *found;
  }

  // A tensor that the layout cannot do without, of at most this rank (and at least min_rank).
  Result<TensorView> needed(std::string_view suffix, int min_rank, int max_rank) const {
    const TensorView view = tensor(suffix);
    if (view.empty()) {
      return make_error(ErrorCode::kCorrupt, "weight {} lacks its tensor {}", quote(base_name),
                        quote(std::string(base_name) + std::string(suffix)));
    }
    if (view.rank >= min_rank && view.rank <= max_rank) return view;
    return make_error(ErrorCode::kCorrupt, "tensor {} has shape {}, needed are {} dimensions",
                      quote(std::string(base_name) + std::string(suffix)), view.shape_string(),
                      min_rank == max_rank ? fmt::format("{}", min_rank)
                                           : fmt::format("{} to {}", min_rank, max_rank));
  }

  WeightView start(WeightScheme scheme) const {
    WeightView weight;
    weight.scheme = scheme;
    weight.name = std::string(base_name);
    return weight;
  }
};

// Inputs per group when `num_groups` groups cover them: a size that the config names, since the
// last group may be short and then several sizes give as many groups; else an even share. 0, which
// validation refuses, if none fits.
int64_t group_size_for(const Search& search, int64_t num_inputs, int64_t num_groups) {
  if (num_groups <= 0 || num_inputs <= 0) return 0;
  for (const int64_t size : search.quantisation.group_sizes) {
    if (size > 0 && size <= num_inputs && (num_inputs - 1) / size + 1 == num_groups) return size;
  }
  return num_inputs % num_groups == 0 ? num_inputs / num_groups : 0;
}

Result<WeightView> find_gptq(const Search& search) {
  WeightView weight = search.start(WeightScheme::kGptq);
  weight.values = TRY(search.needed(".qweight", 2, 2));
  weight.scales = TRY(search.needed(".scales", 2, 2));
  weight.zeros = TRY(search.needed(".qzeros", 2, 2));
  weight.num_outputs = weight.scales.dim(1);
  if (weight.num_outputs > 0) {
    const int64_t zero_bits = weight.zeros.dim(1) * kWordBits;
    weight.bits = static_cast<int>(std::min<int64_t>(zero_bits / weight.num_outputs, kWordBits));
  }
  if (weight.bits > 0) weight.num_inputs = weight.values.dim(0) * kWordBits / weight.bits;
  weight.group_size = group_size_for(search, weight.num_inputs, weight.scales.dim(0));
  weight.group_index = search.tensor(".g_idx");
  // Act-order files may have empty or odd-sized last groups; the index then says it all.
  if (weight.group_size == 0 && !weight.group_index.empty()) weight.group_size = weight.num_inputs;
  weight.zero_is_stored_minus_one = search.quantisation.zero_is_stored_minus_one;
  return weight;
}

Result<WeightView> find_awq(const Search& search) {
  WeightView weight = search.start(WeightScheme::kAwq);
  weight.values = TRY(search.needed(".qweight", 2, 2));
  weight.scales = TRY(search.needed(".scales", 2, 2));
  weight.zeros = search.tensor(".qzeros");
  weight.bits = 4;
  weight.num_outputs = weight.scales.dim(1);
  weight.num_inputs = weight.values.dim(0);
  weight.group_size = group_size_for(search, weight.num_inputs, weight.scales.dim(0));
  return weight;
}

Result<WeightView> find_int_words(const Search& search) {
  if (search.quantisation.method == QuantMethod::kGptq) return find_gptq(search);
  if (search.quantisation.method == QuantMethod::kAwq) return find_awq(search);
  return make_error(ErrorCode::kUnsupported,
                    "tensor {} is packed, but config.json has no quantization_config that says "
                    "gptq or awq",
                    quote(std::string(search.base_name) + ".qweight"));
}

// Logical [N, K] of a packed weight, from its tensor of two integers.
Result<std::array<int64_t, 2>> read_weight_shape(const Search& search) {
  const TensorView view = TRY(search.needed(".weight_shape", 1, 1));
  const bool wide = view.dtype == DType::kI64;
  if ((!wide && view.dtype != DType::kI32) || view.dim(0) != 2) {
    return make_error(ErrorCode::kCorrupt, "tensor {} is {} {}, needed are two I64 or I32",
                      quote(std::string(search.base_name) + ".weight_shape"),
                      dtype_name(view.dtype), view.shape_string());
  }
  std::array<int64_t, 2> shape{};
  std::array<int32_t, 2> narrow{};
  std::memcpy(wide ? static_cast<void*>(shape.data()) : narrow.data(), view.data, view.num_bytes);
  if (!wide) shape = {narrow[0], narrow[1]};
  return shape;
}

// compressed-tensors fills weight_g_idx with -1 where no order was recorded.
TensorView recorded_order(const TensorView& index) {
  if (index.empty() || index.dtype != DType::kI32) return index;
  int32_t first = 0;
  if (index.num_bytes >= sizeof(first)) std::memcpy(&first, index.data, sizeof(first));
  return first == -1 ? TensorView{} : index;
}

// group size of scales [N, G], [N, 1], or one element.
int64_t group_size_of_scales(const Search& search, const WeightView& weight) {
  return group_size_for(search, weight.num_inputs,
                        weight.scales.rank == 2 ? weight.scales.dim(1) : 1);
}

Result<WeightView> find_ct_int_packed(const Search& search) {
  WeightView weight = search.start(WeightScheme::kCtPacked);
  weight.values = TRY(search.needed(".weight_packed", 2, 2));
  weight.scales = TRY(search.needed(".weight_scale", 0, 2));
  weight.zeros = search.tensor(".weight_zero_point");
  const auto [num_outputs, num_inputs] = TRY(read_weight_shape(search));
  if (num_outputs != weight.values.dim(0) || num_inputs <= 0 || num_inputs > INT32_MAX) {
    return make_error(
        ErrorCode::kCorrupt, "weight {} has weight_shape [{}, {}], its packed values are {}",
        quote(search.base_name), num_outputs, num_inputs, weight.values.shape_string());
  }
  weight.num_outputs = num_outputs;
  weight.num_inputs = num_inputs;
  for (const int bits : {2, 4, 8}) {
    const int64_t per_word = kWordBits / bits;
    if ((num_inputs + per_word - 1) / per_word == weight.values.dim(1)) weight.bits = bits;
  }
  weight.group_size = group_size_of_scales(search, weight);
  weight.group_index = recorded_order(search.tensor(".weight_g_idx"));
  return weight;
}

Result<WeightView> find_ct_fp4(const Search& search) {
  const TensorView global_scale = search.tensor(".weight_global_scale");
  WeightView weight =
      search.start(global_scale.empty() ? WeightScheme::kMxfp4 : WeightScheme::kNvfp4);
  weight.values = TRY(search.needed(".weight_packed", 2, 2));
  weight.scales = TRY(search.needed(".weight_scale", 2, 2));
  weight.global_scale = global_scale;
  if (global_scale.rank == 0 && !global_scale.empty()) {
    weight.global_scale.rank = 1;
    weight.global_scale.shape[0] = 1;
  }
  weight.num_outputs = weight.values.dim(0);
  weight.num_inputs = weight.values.dim(1) * 2;
  weight.group_size = global_scale.empty() ? 32 : 16;
  weight.bits = 4;
  return weight;
}

Result<WeightView> find_ct_packed(const Search& search) {
  const bool words = search.tensor(".weight_packed").dtype == DType::kI32;
  return words ? find_ct_int_packed(search) : find_ct_fp4(search);
}

bool is_float8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

// Plain 8-bit values with scales beside them.
Result<WeightView> find_scaled(const Search& search, const TensorView& values) {
  TensorView scales = search.tensor(".weight_scale_inv");
  if (scales.empty()) scales = TRY(search.needed(".weight_scale", 0, 3));
  const bool integers = values.dtype == DType::kI8;
  WeightView weight = search.start(integers ? WeightScheme::kCtInt8 : WeightScheme::kCtFloat8);
  weight.values = values;
  weight.scales = scales;
  weight.num_outputs = values.dim(0);
  weight.num_inputs = values.dim(1);
  if (integers) weight.zeros = search.tensor(".weight_zero_point");
  const auto [block_outputs, block_inputs] =
      std::pair(search.quantisation.block_outputs, search.quantisation.block_inputs);
  const bool blocks = scales.rank == 2 && scales.num_elements() >= 1 &&
                      scales.dim(0) == (weight.num_outputs - 1) / block_outputs + 1 &&
                      scales.dim(1) == (weight.num_inputs - 1) / block_inputs + 1;
  if (!integers && blocks) {
    weight.scheme = WeightScheme::kFloat8Block;
    weight.block_outputs = block_outputs;
    weight.group_size = std::min(block_inputs, weight.num_inputs);
    return weight;
  }
  if (scales.rank == 1 && scales.dim(0) == weight.num_outputs && scales.dim(0) > 1) {
    weight.scales.rank = 2;  // [N] is a channel scale like [N, 1]
    weight.scales.shape[1] = 1;
  }
  weight.group_size = group_size_of_scales(search, weight);
  return weight;
}

WeightView dense_view(const Search& search, const TensorView& values) {
  WeightView weight = search.start(WeightScheme::kDense);
  weight.values = values;
  weight.num_outputs = values.dim(0);
  weight.num_inputs = values.dim(1);
  weight.group_size = weight.num_inputs;
  return weight;
}

Result<WeightView> find_plain(const Search& search) {
  const TensorView values = TRY(search.needed(".weight", 2, 2));
  if (search.checkpoint.kind() == CheckpointKind::kSafetensors &&
      (values.dtype == DType::kI8 || is_float8(values.dtype))) {
    return find_scaled(search, values);
  }
  WeightView weight = dense_view(search, values);
  if (search.checkpoint.kind() != CheckpointKind::kGguf) return weight;
  // A number for each input is no scale of the weight: it belongs to the network.
  const TensorView scale = search.tensor(".scale");
  const bool of_inputs = scale.num_elements() > 1 && scale.num_elements() == weight.num_inputs;
  if (!scale.empty() && !of_inputs) weight.global_scale = scale;
  return weight;
}

struct LayoutRow {
  std::string_view leading_suffix;
  Result<WeightView> (*find)(const Search& search);
};

constexpr std::array<LayoutRow, 3> kLayouts = {{
    {".weight", find_plain},
    {".qweight", find_int_words},
    {".weight_packed", find_ct_packed},
}};

Result<WeightView> validated(WeightView weight) {
  TRY(validate_weight(weight));
  return weight;
}

Error not_found(const Search& search, std::string_view suffixes) {
  return make_error(ErrorCode::kNotFound, "{}: has no tensor {} followed by {}",
                    search.checkpoint.path(), quote(search.base_name), suffixes);
}

Result<TensorView> expert_slice(const Search& search, std::string_view suffix, int rank,
                                int64_t expert) {
  const TensorView stack = TRY(search.needed(suffix, rank, rank));
  if (expert >= 0 && expert < stack.dim(0)) return stack.slice(expert);
  return make_error(ErrorCode::kCorrupt, "tensor {} has shape {}, expert {} is needed",
                    quote(std::string(search.base_name) + std::string(suffix)),
                    stack.shape_string(), expert);
}

Result<WeightView> find_mxfp4_expert(const Search& search, int64_t expert) {
  WeightView weight = search.start(WeightScheme::kMxfp4);
  weight.values = TRY(expert_slice(search, "_blocks", 4, expert));
  weight.scales = TRY(expert_slice(search, "_scales", 3, expert));
  weight.num_outputs = weight.values.dim(0);
  weight.num_inputs = weight.scales.dim(1) * 32;
  weight.group_size = 32;
  weight.bits = 4;
  return weight;
}

Result<WeightView> find_dense_expert(const Search& search, std::string_view suffix,
                                     int64_t expert) {
  WeightView weight = dense_view(search, TRY(expert_slice(search, suffix, 3, expert)));
  const TensorView scale = search.tensor(".scale");
  if (search.checkpoint.kind() != CheckpointKind::kGguf || scale.empty()) return weight;
  weight.global_scale = scale;
  if (scale.num_elements() > 1) {
    TensorView one = TRY(expert_slice(search, ".scale", 1, expert));
    one.rank = 1;
    one.shape[0] = 1;
    weight.global_scale = one;
  }
  return weight;
}

}  // namespace

Result<WeightView> find_weight(const Checkpoint& checkpoint, const Quantisation& quantisation,
                               std::string_view base_name) {
  const Search search{checkpoint, quantisation, base_name};
  for (const LayoutRow& layout : kLayouts) {
    if (search.tensor(layout.leading_suffix).empty()) continue;
    return validated(TRY(layout.find(search)));
  }
  return not_found(search, ".weight, .qweight or .weight_packed");
}

Result<WeightView> find_expert_weight(const Checkpoint& checkpoint,
                                      const Quantisation& quantisation, std::string_view base_name,
                                      int64_t expert) {
  const Search search{checkpoint, quantisation, base_name};
  if (!search.tensor("_blocks").empty()) {
    return validated(TRY(find_mxfp4_expert(search, expert)));
  }
  for (const std::string_view suffix : {".weight", ""}) {
    if (search.tensor(suffix).empty()) continue;
    return validated(TRY(find_dense_expert(search, suffix, expert)));
  }
  return not_found(search, "_blocks, .weight or nothing");
}

}  // namespace headrace
