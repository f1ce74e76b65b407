// What to tell somebody whose model this version cannot run.
#include <algorithm>
#include <string>
#include <vector>

#include "base/edit_distance.h"
#include "model/config/families.h"
#include "model/config/roles.h"

namespace headrace {
namespace {

// The scan of Mamba 2 runs; the first has a decay of its own for each state of each channel.
constexpr std::string_view kFirstScan = "the selective scan of Mamba 1";
constexpr std::string_view kEncoder = "an encoder";

// Model types (and GGUF architecture names) that are known, and what each needs.
struct LaterRow {
  std::string_view model_type;
  std::array<std::string_view, 2> needs;
};
constexpr LaterRow kLater[] = {
    {"llama4_text", {"attention in chunks"}},
    {"llama4", {"attention in chunks"}},
    {"bitnet", {"norms before the output projections"}},
    {"dbrx", {"experts stacked in one matrix"}},
    {"jamba", {kFirstScan}},
    {"mamba", {kFirstScan}},
    {"falcon_mamba", {kFirstScan}},
    {"persimmon", {"biases of head norms"}},
    {"xglm", {"sinusoidal positions"}},
    {"bert", {kEncoder}},
    {"t5", {kEncoder}},
};

// Parts of tensor names that give a kind of layer away that does not run.
struct FeatureRow {
  std::string_view part;
  std::string_view feature;
};
constexpr FeatureRow kFeatures[] = {
    {".x_proj", kFirstScan},
    {"ssm_x.", kFirstScan},
    {"encoder.", kEncoder},
    {"cross_attn", "cross attention"},
};

std::string_view nearest_name(std::string_view model_type) {
  std::string_view nearest;
  size_t best = model_type.size() + 64;
  for (const Family& family : families()) {
    for (std::string_view known : {family.model_types[0], family.gguf.architecture}) {
      if (known.empty()) continue;
      const size_t distance = edit_distance(model_type, known);
      if (distance >= best) continue;
      best = distance;
      nearest = family.name;
    }
  }
  return nearest;
}

// Names of one layer's tensors without prefix, index and suffix: "mlp.down_proj".
std::vector<std::string> layer_tensors(const Checkpoint& checkpoint) {
  const std::string marker = std::string(layer_prefix(checkpoint.kind())) + "0.";
  std::vector<std::string> names;
  for (const std::string& name : checkpoint.names()) {
    const size_t at = name.find(marker);
    if (at == std::string::npos) continue;
    const std::string rest = name.substr(at + marker.size());
    names.push_back(rest.substr(0, rest.rfind('.')));
  }
  return names;
}

// How many of a family's norms these tensors have, less those they have too many or too few of.
int norm_score(const Family& family, CheckpointKind kind, const std::vector<std::string>& tensors) {
  const BlockForm& block = *family.block;
  int score = 0;
  for (std::string_view norm : kind == CheckpointKind::kGguf ? block.gguf : block.safetensors) {
    if (norm.empty()) continue;
    score += std::find(tensors.begin(), tensors.end(), norm) != tensors.end() ? 1 : -1;
  }
  const std::string_view q_norm = role_row(Role::kQNorm).parts[0].names.in(kind)[0];
  const bool has_qk_norm = std::find(tensors.begin(), tensors.end(), q_norm) != tensors.end();
  score += has_qk_norm == (family.qk_norm != QkNorm::kNone) ? 1 : -1;
  return score;
}

std::string_view nearest_by_tensors(const Checkpoint& checkpoint,
                                    const std::vector<std::string>& tensors) {
  std::string_view nearest;
  int best = 0;
  for (const Family& family : families()) {
    const int score = norm_score(family, checkpoint.kind(), tensors);
    if (score <= best) continue;
    best = score;
    nearest = family.name;
  }
  return nearest;
}

std::string joined(const std::vector<std::string_view>& parts, std::string_view separator) {
  std::string text;
  for (std::string_view part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::vector<std::string_view> features_of(const Checkpoint& checkpoint) {
  std::vector<std::string_view> features;
  for (const std::string& name : checkpoint.names()) {
    const std::string_view feature = feature_of_tensor(name);
    if (feature.empty()) continue;
    if (std::find(features.begin(), features.end(), feature) == features.end()) {
      features.push_back(feature);
    }
  }
  return features;
}

}  // namespace

std::string_view feature_of_tensor(std::string_view tensor_name) {
  for (const FeatureRow& row : kFeatures) {
    if (tensor_name.find(row.part) != std::string_view::npos) return row.feature;
  }
  return {};
}

Error unknown_family_error(std::string_view model_type, const Checkpoint& checkpoint) {
  for (const LaterRow& row : kLater) {
    if (row.model_type != model_type) continue;
    std::vector<std::string_view> needs;
    for (std::string_view need : row.needs) {
      if (!need.empty()) needs.push_back(need);
    }
    return make_error(ErrorCode::kUnsupported,
                      "a {} model needs {}, which this version does not have", model_type,
                      joined(needs, " and "));
  }
  std::vector<std::string_view> known;
  for (const Family& family : families()) known.push_back(family.name);
  const std::vector<std::string> tensors = layer_tensors(checkpoint);
  Error error = make_error(ErrorCode::kUnsupported,
                           "the model type '{}' is unknown; the nearest known name is {}",
                           model_type, nearest_name(model_type));
  const std::string_view alike = nearest_by_tensors(checkpoint, tensors);
  if (!alike.empty())
    error.message += fmt::format(", and its tensors are named most like {}", alike);
  const std::vector<std::string_view> features = features_of(checkpoint);
  if (!features.empty()) {
    error.message += fmt::format("; its tensors show {}, which this version does not have",
                                 joined(features, " and "));
  }
  error.hint = fmt::format("supported are {}", joined(known, ", "));
  return error;
}

}  // namespace headrace
