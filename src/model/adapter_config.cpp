#include "model/adapter_config.h"

#include <boost/regex.hpp>
#include <cmath>
#include <optional>

#include "model/config/json_object.h"

namespace headrace {
namespace {

constexpr double kLargestAlpha = 1e6;
constexpr size_t kMostPatterns = 4096;
constexpr size_t kLongestPattern = 1024;

// Keys whose value, where it is neither null, false nor empty, makes another adapter than these.
constexpr std::string_view kOtherForms[] = {
    "use_qalora",       "alora_invocation_tokens", "layer_replication", "use_bdlora",
    "arrow_config",     "trainable_token_indices", "kasa_config",       "velora_config",
    "monteclora_config"};

// How A and B began, where that took something out of the base's weights: they add to what was
// left.
constexpr std::string_view kBeginningsWithBase[] = {"pissa", "corda", "olora", "loftq"};

// A pattern is a regular expression for a module's name or for its end behind a dot. The matcher
// gives up on expressions that would take it long.
Result<bool> matches(const std::string& pattern, std::string_view module) {
  try {
    const boost::regex expression("(.*\\.)?(" + pattern + ")", boost::regex::perl);
    return boost::regex_match(module.begin(), module.end(), expression);
  } catch (const std::runtime_error& error) {
    return make_error(ErrorCode::kInvalidArgument,
                      "adapter_config.json: the pattern '{}' cannot be matched: {}", pattern,
                      error.what());
  }
}

template <typename T>
Result<std::optional<T>> first_match(const std::vector<std::pair<std::string, T>>& patterns,
                                     std::string_view module) {
  for (const auto& [pattern, value] : patterns) {
    if (TRY(matches(pattern, module))) return std::optional<T>(value);
  }
  return std::optional<T>();
}

Status check_rank(int64_t rank, std::string_view key) {
  if (rank >= 1 && rank <= kMaxAdapterRank) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "adapter_config.json: {} is {}, but must be 1 to {}", key, rank,
                    kMaxAdapterRank);
}

Status check_alpha(double alpha, std::string_view key) {
  if (std::abs(alpha) <= kLargestAlpha) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "adapter_config.json: {} is {}, but must be -{} to {}", key, alpha,
                    kLargestAlpha, kLargestAlpha);
}

// visit(pattern, values) for each entry of an object of patterns.
template <typename Visit>
Status visit_patterns(const JsonObject& json, std::string_view key, const Visit& visit) {
  const std::optional<JsonObject> patterns = TRY(json.object(key));
  if (!patterns) return {};
  if (patterns->keys().size() > kMostPatterns) {
    return make_error(ErrorCode::kInvalidArgument,
                      "adapter_config.json: {} has {} entries, at most {} are read", key,
                      patterns->keys().size(), kMostPatterns);
  }
  for (const std::string_view pattern : patterns->keys()) {
    if (pattern.size() > kLongestPattern) {
      return make_error(ErrorCode::kInvalidArgument,
                        "adapter_config.json: a pattern of {} has {} bytes, at most {} are read",
                        key, pattern.size(), kLongestPattern);
    }
    TRY(visit(pattern, *patterns));
  }
  return {};
}

bool is_set(const boost::json::value* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_bool()) return value->get_bool();
  if (value->is_array()) return !value->get_array().empty();
  if (value->is_object()) return !value->get_object().empty();
  return true;
}

Status check_beginning(const JsonObject& json) {
  const boost::json::value* value = json.find("init_lora_weights");
  if (value == nullptr || !value->is_string()) return {};
  const std::string_view beginning = value->get_string();
  for (const std::string_view other : kBeginningsWithBase) {
    if (!beginning.starts_with(other)) continue;
    Error error = make_error(ErrorCode::kUnsupported,
                             "adapter_config.json: init_lora_weights is '{}': the adapter is for "
                             "weights that are not the base's own",
                             beginning.substr(0, 40));
    error.hint =
        "save it with path_initial_model_for_weight_conversion, which makes one for the base";
    return error;
  }
  return {};
}

Status check_form(const JsonObject& json) {
  const std::string type = TRY(json.text("peft_type", "LORA"));
  if (type != "LORA") {
    return make_error(ErrorCode::kUnsupported,
                      "adapter_config.json: peft_type is '{}', but only LORA can be loaded", type);
  }
  for (const std::string_view key : kOtherForms) {
    if (!is_set(json.find(key))) continue;
    return make_error(ErrorCode::kUnsupported,
                      "adapter_config.json: {} is set, which cannot be loaded", key);
  }
  TRY(check_beginning(json));
  const std::string bias = TRY(json.text("bias", "none"));
  if (bias == "none" || bias == "all" || bias == "lora_only") return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "adapter_config.json: bias is '{}', but must be none, all or lora_only", bias);
}

Status read_patterns(const JsonObject& json, AdapterConfig* config) {
  TRY(visit_patterns(json, "rank_pattern",
                     [&](std::string_view pattern, const JsonObject& patterns) -> Status {
                       const int64_t rank = TRY(patterns.integer(pattern));
                       TRY(check_rank(rank, pattern));
                       config->ranks.emplace_back(pattern, rank);
                       return {};
                     }));
  return visit_patterns(json, "alpha_pattern",
                        [&](std::string_view pattern, const JsonObject& patterns) -> Status {
                          const double alpha = TRY(patterns.number(pattern));
                          TRY(check_alpha(alpha, pattern));
                          config->alphas.emplace_back(pattern, alpha);
                          return {};
                        });
}

}  // namespace

Result<int64_t> AdapterConfig::rank_of(std::string_view module) const {
  return TRY(first_match(ranks, module)).value_or(rank);
}

Result<float> AdapterConfig::scale_of(std::string_view module, int64_t module_rank) const {
  const double own = TRY(first_match(alphas, module)).value_or(alpha);
  const auto divisor = static_cast<double>(module_rank);
  return static_cast<float>(own / (rank_stabilised ? std::sqrt(divisor) : divisor));
}

Result<AdapterConfig> read_adapter_config(std::string_view text) {
  const boost::json::value root = TRY(parse_json_object(text, "adapter_config.json"));
  const JsonObject json(root.get_object(), nullptr, "adapter_config.json");
  TRY(check_form(json));
  AdapterConfig config;
  config.base_model = TRY(json.text("base_model_name_or_path", ""));
  config.rank = TRY(json.integer("r", 8));
  TRY(check_rank(config.rank, "r"));
  config.alpha = TRY(json.number("lora_alpha", 8));
  TRY(check_alpha(config.alpha, "lora_alpha"));
  config.rank_stabilised = TRY(json.boolean("use_rslora", false));
  config.has_magnitudes = TRY(json.boolean("use_dora", false));
  config.ties_embeddings = TRY(json.boolean("ensure_weight_tying", false));
  config.saved_modules = TRY(json.texts("modules_to_save"));
  TRY(read_patterns(json, &config));
  return config;
}

}  // namespace headrace
