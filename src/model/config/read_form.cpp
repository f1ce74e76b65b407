#include "model/config/read_form.h"

#include "model/config/gguf_keys.h"

namespace headrace {
namespace {

// Numbers and truth values alike.
Result<double> value_of(const JsonObject& json, const KeyValue& row) {
  const boost::json::value* found = json.find(row.key);
  if (found == nullptr || found->is_null()) return row.absent;
  if (found->is_bool()) return found->get_bool() ? 1.0 : 0.0;
  return json.number(row.key);
}

Presence required_if(bool value) { return value ? Presence::kRequired : Presence::kAbsent; }

// What is the family's own in files of every kind.
void set_form(const Family& family, ModelConfig* config) {
  const FormRow& form = family.form;
  config->norm_weight = form.norm_weight;
  config->qk_norm_after_rope = form.norm_after_rope;
  config->embedding_norm = form.embedding_norm;
  config->learned_positions = form.positions.learned;
  config->position_offset = form.positions.learned ? form.positions.offset : 0;
  if (!form.plain_mlp) return;
  for (LayerConfig& layer : config->layers) {
    if (layer.mlp == MlpKind::kDense) layer.mlp = MlpKind::kPlain;
  }
}

void set_alibi(const Family& family, double max_bias, ModelConfig* config) {
  config->alibi_max_bias = static_cast<float>(max_bias);
  config->alibi_scale = family.form.alibi.scaled ? config->layers.front().attention_scale : 1.0f;
}

}  // namespace

Result<const KeyValue*> first_unlike(const JsonObject& json, const KeyValues& values) {
  for (const KeyValue& row : values) {
    if (row.key.empty()) break;
    if (TRY(value_of(json, row)) != row.value) return &row;
  }
  return nullptr;
}

Result<bool> holds(const JsonObject& json, const BiasRule& rule) {
  if (rule.key.empty()) return rule.value;
  return json.boolean(rule.key, rule.value);
}

Status read_form(const Family& family, const JsonObject& json, ModelConfig* config) {
  const FormRow& form = family.form;
  if (const KeyValue* row = TRY(first_unlike(json, form.needs))) {
    return make_error(ErrorCode::kUnsupported,
                      "config.json: {} is {}, but this version runs {} models only where it is {}",
                      row->key, TRY(value_of(json, *row)), family.name, row->value);
  }
  set_form(family, config);
  config->norm_bias = TRY(holds(json, form.norm_bias));
  config->head_bias = required_if(TRY(holds(json, form.head_bias)));
  config->qkv_order = form.qkv_order;
  if (form.transposed) config->transposed = Transposed::kLayers;
  if (TRY(holds(json, form.alibi.on))) {
    const AlibiRow& alibi = form.alibi;
    const bool has_key = !alibi.max_bias_key.empty();
    set_alibi(family,
              has_key ? TRY(json.number(alibi.max_bias_key, alibi.max_bias)) : alibi.max_bias,
              config);
  }
  for (LayerConfig& layer : config->layers) {
    if (config->alibi_max_bias != 0) layer.rope_idx = -1;
    if (!TRY(holds(json, form.qk_norm))) layer.qk_norm = QkNorm::kNone;
  }
  return {};
}

void read_form(const Family& family, const Checkpoint& gguf, ModelConfig* config) {
  set_form(family, config);
  config->norm_bias = gguf.find("output_norm.bias") != nullptr;
  config->head_bias = Presence::kIfPresent;
  const AlibiRow& alibi = family.form.alibi;
  if (alibi.on.value) {
    const GgufKeys keys(gguf.metadata(), family.gguf.architecture);
    set_alibi(family, keys.number("attention.max_alibi_bias", alibi.max_bias), config);
  }
  if (!family.form.qk_norm.key.empty() && gguf.find("blk.0.attn_q_norm.weight") == nullptr) {
    for (LayerConfig& layer : config->layers) layer.qk_norm = QkNorm::kNone;
  }
}

}  // namespace headrace
