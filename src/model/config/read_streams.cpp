#include "model/config/read_streams.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace headrace {
namespace {

Status check_active(int64_t idx) {
  if (idx == 0) return {};
  return make_error(ErrorCode::kUnsupported,
                    "the active stream is {}, but this version runs models whose first is", idx);
}

// What an MLP leaves out; a layer that leaves out nothing is a dense one.
void make_sparse(double deviations, LayerConfig* layer) {
  layer->mlp = MlpKind::kSparse;
  layer->gate_deviations = static_cast<float>(deviations);
}

// One share for all layers, or one for each.
Result<std::vector<double>> shares_of(const JsonObject& json, const StreamRow& row,
                                      size_t num_layers) {
  constexpr std::string_view kKey = "activation_sparsity_pattern";
  std::vector<double> shares;
  const boost::json::value* stated = json.find(kKey);
  if (stated == nullptr || stated->is_null()) {
    shares.assign(num_layers, 0);
    const size_t count = std::min<size_t>(num_layers, static_cast<size_t>(row.num_sparse));
    std::fill_n(shares.begin(), count, row.share);
  } else if (stated->is_array()) {
    shares = TRY(json.numbers(kKey));
  } else {
    shares.assign(num_layers, TRY(json.number(kKey)));
  }
  const bool in_range = std::all_of(shares.begin(), shares.end(),
                                    [](double share) { return share >= 0 && share < 1; });
  if (shares.size() == num_layers && in_range) return shares;
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: {} must hold {} shares from 0 to below 1, one for each layer",
                    kKey, num_layers);
}

}  // namespace

double deviations_above(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    const double below = 0.5 * std::erfc(-middle / std::numbers::sqrt2);
    (below < share ? low : high) = middle;
  }
  return low;
}

Status read_streams(const Family& family, const JsonObject& json, ModelConfig* config) {
  if (family.streams == nullptr) return {};
  const StreamRow& row = *family.streams;
  config->num_streams = TRY(json.small_integer("altup_num_inputs", row.num_streams));
  config->laurel_rank = TRY(json.small_integer("laurel_rank", row.laurel_rank));
  config->stream_scale = TRY(json.boolean("altup_correct_scale", true));
  TRY(check_active(TRY(json.integer("altup_active_idx", 0))));
  const std::vector<double> shares = TRY(shares_of(json, row, config->layers.size()));
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0) make_sparse(deviations_above(shares[i]), &config->layers[i]);
  }
  return {};
}

Status read_streams(const Family& family, const GgufKeys& keys, const Checkpoint& checkpoint,
                    ModelConfig* config) {
  if (family.streams == nullptr) return {};
  const auto size = [&](std::string_view key, int64_t fallback) -> Result<int> {
    return static_cast<int>(std::clamp<int64_t>(TRY(keys.integer(key, fallback)), 0, 1 << 24));
  };
  config->num_streams = TRY(size("altup.num_inputs", family.streams->num_streams));
  TRY(check_active(TRY(keys.integer("altup.active_idx", 0))));
  config->stream_scale = checkpoint.find("blk.0.altup_correct_scale.weight") != nullptr;
  const TensorView* low = checkpoint.find("blk.0.laurel_l.weight");
  if (low == nullptr || low->rank != 2) {
    return make_error(ErrorCode::kNotFound, "the GGUF file has no matrix blk.0.laurel_l.weight");
  }
  config->laurel_rank = static_cast<int>(std::min<int64_t>(low->dim(0), 1 << 24));
  // Of a layer that leaves out nothing, minus infinity.
  const auto listed = checkpoint.metadata().numbers(keys.name("activation_sparsity_scale"));
  for (size_t i = 0; listed && i < std::min(listed->size(), config->layers.size()); ++i) {
    if (std::isfinite((*listed)[i])) make_sparse((*listed)[i], &config->layers[i]);
  }
  return {};
}

}  // namespace headrace
