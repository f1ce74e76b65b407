#include "model/config/read_experts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace headrace {
namespace {

constexpr std::string_view kCountKeys[] = {"num_experts", "num_local_experts", "n_routed_experts"};
constexpr std::string_view kPerTokenKeys[] = {"num_experts_per_tok", "num_experts_per_token",
                                              "top_k_experts"};
constexpr std::string_view kGroupKeys[] = {"n_group", "num_expert_group"};
constexpr std::string_view kSharedKeys[] = {"n_shared_experts", "num_shared_experts"};

// A number, or one for each layer, which must be the same for all.
Result<int> same_integer(const JsonObject& json, std::string_view key, int64_t least) {
  const boost::json::value* found = json.find(key);
  if (found == nullptr || !found->is_array()) return json.small_integer(key, {}, least);
  const std::vector<double> numbers = TRY(json.numbers(key));
  const double first = numbers.empty() ? -1 : numbers.front();
  const bool same = std::all_of(numbers.begin(), numbers.end(),
                                [first](double number) { return number == first; });
  if (same && first >= static_cast<double>(least) && first <= 1e6 && first == std::floor(first)) {
    return static_cast<int>(first);
  }
  return make_error(ErrorCode::kUnsupported,
                    "config.json: {} is a list, but its entries must all be one whole number "
                    "between {} and 1000000",
                    key, least);
}

// The first of the keys that has a value.
Result<int> first_integer(const JsonObject& json, std::span<const std::string_view> keys,
                          int64_t fallback, int64_t least) {
  for (const std::string_view key : keys) {
    if (json.has_value(key)) return same_integer(json, key, least);
  }
  return json.small_integer(keys.front(), fallback, least);
}

Status read_groups(const ExpertRow& row, const JsonObject& json, ExpertConfig* experts) {
  if (!row.groups) return {};
  if (!row.groups_if.empty()) {
    const std::string method = TRY(json.text("topk_method", "greedy"));
    if (method != row.groups_if) return {};
  }
  experts->group_score = row.group_score;
  experts->num_groups = TRY(first_integer(json, kGroupKeys, row.num_groups, 1));
  experts->num_groups_kept = TRY(json.small_integer("topk_group", row.num_groups_kept));
  // One group is all experts.
  if (experts->num_groups == 1) experts->group_score = GroupScore::kSumOfTwo;
  return {};
}

Status read_shared(const ExpertRow& row, const JsonObject& json, ExpertConfig* experts) {
  if (!row.shared_width_key.empty()) {
    experts->shared_intermediate_size =
        TRY(json.small_integer(row.shared_width_key, row.shared_width, 0));
  } else if (row.shared_count >= 0) {
    const int64_t count = TRY(first_integer(json, kSharedKeys, row.shared_count, 0));
    experts->shared_intermediate_size = count * experts->intermediate_size;
  }
  experts->shared_gate = row.shared_gate && experts->shared_intermediate_size > 0;
  return {};
}

Status read_clamp(const ExpertRow& row, const JsonObject& json, ExpertConfig* experts) {
  if (row.swiglu_limit == 0) return {};
  experts->swiglu_alpha = static_cast<float>(TRY(json.number("swiglu_alpha", row.swiglu_alpha)));
  experts->swiglu_limit = static_cast<float>(TRY(json.number("swiglu_limit", row.swiglu_limit)));
  if (experts->swiglu_limit > 0) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: swiglu_limit is {}, but must be above 0", experts->swiglu_limit);
}

Result<ExpertConfig> read_layer(const ExpertRow& row, const JsonObject& json) {
  ExpertConfig experts;
  experts.num_experts = TRY(first_integer(json, kCountKeys, row.num_experts, 0));
  experts.num_experts_per_token =
      TRY(first_integer(json, kPerTokenKeys, row.num_experts_per_token, 0));
  if (experts.num_experts > 0) {
    const auto width = row.width == 0 ? std::nullopt : std::optional<int64_t>(row.width);
    experts.intermediate_size = TRY(json.small_integer(row.width_key, width));
  }
  experts.score = row.score;
  experts.selection_bias = row.selection_bias;
  const BiasRule& rule = row.normalise;
  experts.normalise = rule.key.empty() ? rule.value : TRY(json.boolean(rule.key, rule.value));
  if (experts.normalise) experts.normalise_epsilon = static_cast<float>(row.normalise_epsilon);
  if (row.scale) {
    experts.scale =
        static_cast<float>(TRY(json.number("routed_scaling_factor", row.default_scale)));
  }
  if (row.jitter > 0) {
    experts.jitter = static_cast<float>(TRY(json.number("router_jitter_noise", row.jitter)));
  }
  TRY(read_groups(row, json, &experts));
  TRY(read_shared(row, json, &experts));
  TRY(read_clamp(row, json, &experts));
  return experts;
}

// mlp_layer_types, which wins over the rules.
Result<std::vector<bool>> listed_dense(const JsonObject& json, size_t num_layers) {
  std::vector<bool> dense;
  for (const std::string& type : TRY(json.texts("mlp_layer_types"))) {
    if (type != "dense" && type != "sparse") {
      return make_error(ErrorCode::kUnsupported,
                        "config.json: mlp_layer_types has '{}', but layers are dense or sparse",
                        type);
    }
    dense.push_back(type == "dense");
  }
  if (dense.empty() || dense.size() == num_layers) return dense;
  return make_error(ErrorCode::kInvalidArgument,
                    "config.json: mlp_layer_types has {} entries, but num_hidden_layers is {}",
                    dense.size(), num_layers);
}

Result<std::vector<bool>> dense_layers(const ExpertRow& row, const JsonObject& json,
                                       size_t num_layers) {
  if (row.dense == DenseLayers::kNone) return std::vector<bool>(num_layers, false);
  std::vector<bool> dense = TRY(listed_dense(json, num_layers));
  if (!dense.empty()) return dense;
  dense.assign(num_layers, false);
  if (row.dense == DenseLayers::kLeading) {
    const int leading = TRY(json.small_integer("first_k_dense_replace", row.num_leading, 0));
    for (size_t i = 0; i < num_layers; ++i) dense[i] = i < static_cast<size_t>(leading);
    return dense;
  }
  const auto step = static_cast<size_t>(TRY(json.small_integer("decoder_sparse_step", 1)));
  for (size_t i = 0; i < num_layers; ++i) dense[i] = (i + 1) % step != 0;
  for (const double layer : TRY(json.numbers("mlp_only_layers"))) {
    const bool is_there = layer >= 0 && layer < static_cast<double>(num_layers);
    if (is_there) dense[static_cast<size_t>(layer)] = true;
  }
  return dense;
}

void give_experts(const ExpertConfig& experts, LayerConfig* layer) {
  layer->mlp = MlpKind::kExperts;
  layer->experts = experts;
  layer->intermediate_size = 0;
}

// ---- GGUF ---------------------------------------------------------------------------------------

const TensorView* tensor_of(const Checkpoint& checkpoint, size_t layer, std::string_view name) {
  return checkpoint.find(fmt::format("blk.{}.{}", layer, name));
}

// What the file's function of the scores is called, or the row's, where it says none.
Result<RouterScore> gguf_score(const ExpertRow& row, const GgufKeys& keys) {
  constexpr RouterScore kScores[] = {RouterScore::kSoftmax, RouterScore::kSigmoid,
                                     RouterScore::kSoftmaxChosen};
  const int64_t number = TRY(keys.integer("expert_gating_func", 0));
  if (number == 0) return row.score;
  if (number >= 1 && number <= std::ssize(kScores)) return kScores[number - 1];
  return make_error(ErrorCode::kUnsupported,
                    "GGUF key {} is {}, but 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen) "
                    "are supported",
                    keys.name("expert_gating_func"), number);
}

// A size of up to a million.
Result<int> gguf_size(const GgufKeys& keys, std::string_view key, int64_t fallback) {
  const int64_t value = TRY(keys.integer(key, fallback));
  if (value >= 0 && value <= 1'000'000) return static_cast<int>(value);
  return make_error(ErrorCode::kInvalidArgument,
                    "GGUF key {} is {}, but must be between 0 and 1000000", keys.name(key), value);
}

// What is the same in all layers.
Result<ExpertConfig> gguf_experts(const ExpertRow& row, const GgufKeys& keys) {
  ExpertConfig experts;
  experts.num_experts = TRY(gguf_size(keys, "expert_count", 0));
  experts.num_experts_per_token = TRY(gguf_size(keys, "expert_used_count", 0));
  experts.score = TRY(gguf_score(row, keys));
  const bool normalise = keys.boolean("expert_weights_norm", row.gguf_normalise);
  experts.normalise = normalise && experts.score != RouterScore::kSoftmaxChosen;
  if (experts.normalise) experts.normalise_epsilon = static_cast<float>(row.normalise_epsilon);
  experts.scale = static_cast<float>(keys.number("expert_weights_scale", 1));
  if (experts.scale == 0) experts.scale = 1;  // converters write 0 for none
  experts.jitter = static_cast<float>(row.jitter);
  if (row.groups) {
    experts.num_groups = std::max(TRY(gguf_size(keys, "expert_group_count", 1)), 1);
    experts.num_groups_kept = std::max(TRY(gguf_size(keys, "expert_group_used_count", 1)), 1);
    // An architecture may serve several families, so the score tells what is done with it.
    const bool sigmoid = experts.score == RouterScore::kSigmoid || experts.num_groups == 1;
    experts.group_score = sigmoid ? GroupScore::kSumOfTwo : GroupScore::kMaximum;
  }
  experts.swiglu_alpha = static_cast<float>(row.swiglu_alpha);
  experts.swiglu_limit = static_cast<float>(row.swiglu_limit);
  return experts;
}

// What the tensors of a layer tell: widths, and what is there.
Status read_tensors(const Checkpoint& checkpoint, size_t layer, ExpertConfig* experts) {
  const TensorView* down = tensor_of(checkpoint, layer, "ffn_down_exps.weight");
  if (down == nullptr || down->rank != 3) {
    return make_error(ErrorCode::kNotFound,
                      "the GGUF file has no tensor blk.{}.ffn_down_exps.weight of three dimensions",
                      layer);
  }
  experts->intermediate_size = down->dim(2);
  const TensorView* shared = tensor_of(checkpoint, layer, "ffn_down_shexp.weight");
  if (shared != nullptr && shared->rank == 2) experts->shared_intermediate_size = shared->dim(1);
  experts->shared_gate = tensor_of(checkpoint, layer, "ffn_gate_inp_shexp.weight") != nullptr;
  experts->selection_bias = tensor_of(checkpoint, layer, "exp_probs_b.bias") != nullptr ||
                            tensor_of(checkpoint, layer, "exp_probs_b") != nullptr;
  return {};
}

}  // namespace

Status read_experts_json(const ExpertRow& row, const JsonObject& json, ModelConfig* config) {
  const ExpertConfig experts = TRY(read_layer(row, json));
  const std::vector<bool> dense = TRY(dense_layers(row, json, config->layers.size()));
  for (size_t i = 0; i < dense.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (!dense[i] && experts.num_experts > 0) give_experts(experts, &layer);
    // Without experts the shared one is all there is.
    if (experts.num_experts == 0 && experts.shared_intermediate_size > 0) {
      layer.intermediate_size = experts.shared_intermediate_size;
    }
  }
  config->router_bias = config->expert_bias = row.biases ? Presence::kRequired : Presence::kAbsent;
  if (row.transposed) config->transposed = Transposed::kExperts;
  config->interleaved_experts = row.interleaved;
  return {};
}

Status read_experts_gguf(const ExpertRow& row, const GgufKeys& keys, const Checkpoint& checkpoint,
                         ModelConfig* config) {
  const ExpertConfig of_all = TRY(gguf_experts(row, keys));
  if (of_all.num_experts == 0) return {};
  config->router_bias = config->expert_bias = Presence::kIfPresent;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    if (tensor_of(checkpoint, i, "ffn_gate_inp.weight") == nullptr) continue;
    ExpertConfig experts = of_all;
    TRY(read_tensors(checkpoint, i, &experts));
    give_experts(experts, &config->layers[i]);
  }
  return {};
}

}  // namespace headrace
