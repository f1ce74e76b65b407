#include "model/workspace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "model/config/roles.h"

namespace headrace {
namespace {

struct Widths {
  size_t hidden = 0, qkv = 0, q = 0, rope = 0;
};

Widths widths_of(const ModelConfig& config) {
  Widths widths;
  widths.hidden = static_cast<size_t>(config.hidden_size);
  for (const LayerConfig& layer : config.layers) {
    const auto head_dim = static_cast<size_t>(layer.head_dim);
    const auto heads = static_cast<size_t>(layer.num_attention_heads);
    const auto kv_heads = static_cast<size_t>(layer.num_key_value_heads);
    widths.q = std::max(widths.q, heads * head_dim);
    const size_t gates = layer.attention_gate ? heads : 0;
    widths.qkv = std::max(widths.qkv, (heads + 2 * kv_heads + gates) * head_dim);
  }
  for (const RopeConfig& rope : config.ropes) {
    widths.rope = std::max(widths.rope, static_cast<size_t>(rope.rope_dims) / 2);
  }
  return widths;
}

// What the mixer of any layer needs.
size_t mixer_floats(const ModelConfig& config, int64_t num_rows) {
  int64_t most = 0;
  for (const LayerConfig& layer : config.layers) {
    const MixerRow& row = mixer_row(layer.mixer);
    if (row.room != nullptr) most = std::max(most, row.room(config, layer, num_rows));
  }
  return static_cast<size_t>(most);
}

// Inputs of all layers.
int64_t layer_input_floats(const ModelConfig& config, int64_t num_rows) {
  return num_rows * config.num_layers() * config.hidden_size_per_layer_input;
}

// What the MLP of any layer needs; the inputs of the layers are made there too, and what streams
// need between layers' parts.
size_t mlp_floats(const ModelConfig& config, int64_t num_rows) {
  const int64_t of_streams = config.num_streams > 1 ? config.num_streams : 0;
  int64_t most = std::max({layer_input_floats(config, num_rows),
                           num_rows * int64_t{config.laurel_rank}, num_rows * of_streams});
  for (const LayerConfig& layer : config.layers) {
    most = std::max(most, mlp_row(layer.mlp).room(config, layer, num_rows));
  }
  return static_cast<size_t>(most);
}

size_t num_slopes(const ModelConfig& config) {
  if (config.alibi_max_bias == 0) return 0;
  return static_cast<size_t>(config.layers.front().num_attention_heads);
}

// Of a power of two of heads, 2^(-max_bias i / heads) for i from 1; of other numbers those of the
// next lower power, then every second of the next higher.
std::vector<float> slopes_of(const ModelConfig& config) {
  const size_t count = num_slopes(config);
  const size_t power = std::bit_floor(std::max<size_t>(count, 1));
  std::vector<float> slopes;
  for (size_t head = 0; head < count; ++head) {
    const bool is_first = head < power;
    const auto idx = static_cast<double>(is_first ? head + 1 : 2 * (head - power) + 1);
    const double heads = static_cast<double>(is_first ? power : 2 * power);
    const double slope = std::exp2(-double{config.alibi_max_bias} * idx / heads);
    slopes.push_back(static_cast<float>(slope) * config.alibi_scale);
  }
  return slopes;
}

// Hands out aligned pieces of memory; without any it only counts.
class Carver {
 public:
  explicit Carver(DevicePtr<std::byte> base) : base_(base) {}

  DevicePtr<float> floats(size_t count) {
    DevicePtr<float> piece;
    if (base_) piece = (base_ + static_cast<ptrdiff_t>(used_)).cast<float>();
    used_ += (count * sizeof(float) + 63) / 64 * 64;
    return piece;
  }
  size_t used() const { return used_; }

 private:
  DevicePtr<std::byte> base_;
  size_t used_ = 0;
};

void carve(const ModelConfig& config, const ModelOptions& options, Carver& carver,
           Workspace* workspace) {
  const Widths widths = widths_of(config);
  const auto rows = static_cast<size_t>(options.max_batch_tokens);
  workspace->hidden = carver.floats(rows * widths.hidden);
  workspace->normed = carver.floats(rows * widths.hidden);
  workspace->branch = carver.floats(rows * widths.hidden);
  workspace->qkv = carver.floats(rows * widths.qkv);
  workspace->q = carver.floats(rows * widths.q);
  workspace->attended = carver.floats(rows * widths.q);
  workspace->mixer = carver.floats(mixer_floats(config, options.max_batch_tokens));
  workspace->mlp = carver.floats(mlp_floats(config, options.max_batch_tokens));
  workspace->expert_rows =
      carver.floats(2 * static_cast<size_t>(num_experts_before(config, config.num_layers())))
          .cast<uint64_t>();
  workspace->layer_inputs =
      carver.floats(static_cast<size_t>(layer_input_floats(config, options.max_batch_tokens)));
  if (config.num_streams > 1) {
    const auto num_streams = static_cast<size_t>(config.num_streams);
    workspace->streams = carver.floats(num_streams * rows * widths.hidden);
    workspace->half_root = carver.floats(1);
  }
  workspace->q_row_scale = carver.floats(rows);
  workspace->logit_rows =
      carver.floats(static_cast<size_t>(options.max_logit_rows) * widths.hidden);
  if (num_slopes(config) > 0) workspace->alibi_slopes = carver.floats(num_slopes(config));
  if (config.joins_states) {
    workspace->to_join = carver.floats(2 * rows * widths.hidden);
    workspace->joined = carver.floats(2 * rows * widths.hidden);
  }
  for (const RopeConfig& rope : config.ropes) {
    const size_t half = static_cast<size_t>(rope.rope_dims) / 2;
    RopeRows tables;
    tables.cos = carver.floats(rows * half);
    tables.sin = carver.floats(rows * half);
    workspace->ropes.push_back(tables);
  }
}

}  // namespace

size_t Workspace::num_bytes(const ModelConfig& config, const ModelOptions& options) {
  Workspace counted;
  Carver carver(nullptr);
  carve(config, options, carver, &counted);
  return carver.used();
}

Result<Workspace> Workspace::create(const ModelConfig& config, const ModelOptions& options,
                                    Backend& backend) {
  if (options.max_batch_tokens < 1 || options.max_logit_rows < 1 ||
      options.max_batch_tokens > 1'000'000 || options.max_logit_rows > 1'000'000) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a batch of {} tokens with {} rows of logits was asked for, but both must be "
                      "between 1 and 1000000",
                      options.max_batch_tokens, options.max_logit_rows);
  }
  Workspace workspace;
  workspace.memory_ = TRY(backend.allocate(num_bytes(config, options), MemoryUse::kActivations));
  Carver carver(workspace.memory_.data());
  carve(config, options, carver, &workspace);
  const auto num_experts = static_cast<size_t>(num_experts_before(config, config.num_layers()));
  if (num_experts > 0) {
    backend.zero(workspace.expert_rows.bytes(), num_experts * sizeof(uint64_t));
  }
  const auto rows = static_cast<size_t>(options.max_batch_tokens);
  workspace.positions.resize(rows);
  if (config.query_position_beta != 0) workspace.query_scales.resize(rows);
  workspace.head_rows.reserve(static_cast<size_t>(options.max_logit_rows));
  if (config.learned_positions) workspace.position_rows.resize(rows);
  if (config.joins_states) workspace.join_order.resize(2 * rows);
  if (workspace.alibi_slopes) {
    backend.upload<float>(slopes_of(config), workspace.alibi_slopes);
  }
  if (config.num_streams > 1) {
    const float half_root = std::numbers::sqrt2_v<float> / 2;
    backend.upload<float>({&half_root, 1}, workspace.half_root);
  }
  if (config.vocab_size_per_layer_input < config.vocab_size) {
    workspace.layer_input_rows.resize(config.hidden_size_per_layer_input > 0 ? rows : 0);
  }
  workspace.max_rows = options.max_batch_tokens;
  workspace.frequencies.resize(widths_of(config).rope);
  return workspace;
}

}  // namespace headrace
