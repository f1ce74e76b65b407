#include "server/api/pooling_config.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cctype>

#include "base/json.h"

namespace headrace {
namespace {

struct NamedPooling {
  std::string_view name;
  Pooling pooling;
};
constexpr NamedPooling kNames[] = {
    {"mean", Pooling::kMean}, {"cls", Pooling::kFirst},      {"first", Pooling::kFirst},
    {"last", Pooling::kLast}, {"lasttoken", Pooling::kLast},
};

// The switches of sentence-transformers' pooling module. Of several that are on it would join the
// vectors, which nobody trains decoders with.
struct PoolingSwitch {
  std::string_view name;
  std::optional<Pooling> pooling;
};
constexpr PoolingSwitch kPoolingSwitches[] = {
    {"pooling_mode_cls_token", Pooling::kFirst},
    {"pooling_mode_mean_tokens", Pooling::kMean},
    {"pooling_mode_lasttoken", Pooling::kLast},
    {"pooling_mode_max_tokens", std::nullopt},
    {"pooling_mode_mean_sqrt_len_tokens", std::nullopt},
    {"pooling_mode_weightedmean_tokens", std::nullopt},
};

// GGUF pooling_type: none, mean, cls, last, rank.
constexpr int64_t kGgufNone = 0, kGgufMean = 1, kGgufCls = 2, kGgufLast = 3, kGgufRank = 4;

std::string text_of(const boost::json::value* value) {
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

void read_switches(const boost::json::value& json, PoolingConfig& config) {
  int num_on = 0;
  for (const PoolingSwitch& row : kPoolingSwitches) {
    const boost::json::value* value = json_member(&json, row.name);
    if (value == nullptr || !value->is_bool() || !value->get_bool()) continue;
    ++num_on;
    if (row.pooling) {
      config.pooling = *row.pooling;
    } else {
      config.unsupported = std::string(row.name);
    }
  }
  if (num_on > 1) config.unsupported = "several poolings that are joined";
}

Status read_pooling_module(const Checkpoint& checkpoint, const std::string& folder,
                           PoolingConfig& config) {
  const std::string name = folder + "/config.json";
  const auto text = checkpoint.sidecar(name);
  if (!text) return {};
  const boost::json::value json = TRY(parse_json(*text, name));
  const std::string mode = text_of(json_member(&json, "pooling_mode"));
  if (mode.empty()) {
    read_switches(json, config);
  } else if (const auto pooling = pooling_of_name(mode)) {
    config.pooling = *pooling;
  } else {
    config.unsupported = "pooling_mode " + mode;
  }
  return {};
}

// Modules after the transformer: Pooling and Normalize are ours; others would change the vector.
Status read_modules(const Checkpoint& checkpoint, std::string_view text, PoolingConfig& config) {
  const boost::json::value modules = TRY(parse_json(text, "modules.json"));
  if (!modules.is_array()) return make_error(ErrorCode::kCorrupt, "modules.json is not a list");
  for (const boost::json::value& module : modules.get_array()) {
    const std::string type = text_of(json_member(&module, "type"));
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling") {
      config.is_embedding = true;
      TRY(read_pooling_module(checkpoint, text_of(json_member(&module, "path")), config));
    } else if (kind == "LogitScore") {
      config.is_reranker = true;
    } else if (kind != "Transformer" && kind != "Normalize") {
      config.unsupported = "the module " + kind;
    }
  }
  return {};
}

void read_gguf(const Metadata& metadata, PoolingConfig& config) {
  const std::string architecture(metadata.text("general.architecture").value_or(""));
  const auto type = metadata.integer(architecture + ".pooling_type");
  if (!type || *type == kGgufNone) return;
  config.is_embedding = *type != kGgufRank;
  config.is_reranker = *type == kGgufRank;
  if (*type == kGgufMean) config.pooling = Pooling::kMean;
  if (*type == kGgufCls) config.pooling = Pooling::kFirst;
  if (*type < kGgufMean || *type > kGgufRank) {
    config.unsupported = fmt::format("pooling_type {}", *type);
  }
  static_assert(kGgufLast == 3, "as the default");
}

// Decoders that judge pairs have no mark but their name.
bool is_named_reranker(const Checkpoint& checkpoint) {
  std::string name = checkpoint.path();
  while (name.ends_with('/')) name.pop_back();
  name = name.substr(name.rfind('/') + 1);
  name += checkpoint.metadata().text("general.name").value_or("");
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.find("rerank") != std::string::npos;
}

}  // namespace

std::optional<Pooling> pooling_of_name(std::string_view name) {
  for (const NamedPooling& row : kNames) {
    if (row.name == name) return row.pooling;
  }
  return std::nullopt;
}

Result<PoolingConfig> PoolingConfig::read(const Checkpoint& checkpoint) {
  PoolingConfig config;
  if (checkpoint.kind() == CheckpointKind::kGguf) read_gguf(checkpoint.metadata(), config);
  if (const auto modules = checkpoint.sidecar("modules.json")) {
    TRY(read_modules(checkpoint, *modules, config));
  }
  config.is_reranker = config.is_reranker || is_named_reranker(checkpoint);
  return config;
}

}  // namespace headrace
