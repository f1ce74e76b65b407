#include "bench/step_work.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/pack.h"
#include "model/config/read_prediction.h"
#include "model/mixers.h"

namespace headrace {
namespace {

struct ActivationRow {
  cpu::ActivationType activation;
  cpu::PeakKind kind;
  int passes;
};

constexpr ActivationRow kActivations[] = {
    {cpu::ActivationType::kF32, cpu::PeakKind::kF32, 1},
    {cpu::ActivationType::kInt8, cpu::PeakKind::kInt8, 1},
    {cpu::ActivationType::kInt16, cpu::PeakKind::kInt8, 2},  // or a product of 16 bits
    {cpu::ActivationType::kBF16, cpu::PeakKind::kBF16, 1},
    {cpu::ActivationType::kBF16x2, cpu::PeakKind::kBF16, 2},
    {cpu::ActivationType::kBF16Codes, cpu::PeakKind::kBF16, 1},
    {cpu::ActivationType::kFixed, cpu::PeakKind::kInt8, 4},  // two digits of either side
};

ArithmeticWork& slot(std::vector<ArithmeticWork>* work, const ArithmeticWork& wanted) {
  for (ArithmeticWork& row : *work) {
    if (row.kind == wanted.kind && row.passes == wanted.passes) return row;
  }
  return work->emplace_back(wanted);
}

double product_operations(const WeightView& weight) {
  return 2.0 * static_cast<double>(weight.num_outputs) * static_cast<double>(weight.num_inputs);
}

class WorkCounter {
 public:
  WorkCounter(const ModelConfig& config, const Backend& backend, const cpu::KernelSet& kernels,
              StepWork* work)
      : config_(config), backend_(backend), kernels_(kernels), work_(*work) {}

  // normed: whether the layer norms what this weight puts out.
  void linear(const FoundRole& found, bool normed) {
    if (found.parts.empty() || found.pack.role == WeightRole::kEmbedding) return;
    work_.ops.push_back(op_of(found));
    if (normed) work_.ops.back().num_normed = work_.ops.back().num_outputs();
    const size_t num_bytes = backend_.packed_bytes(found.parts, found.pack);
    double share = 1;
    if (found.role == Role::kExpertGateUp || found.role == Role::kExpertDown) {
      const ExpertConfig& experts = config_.layers[static_cast<size_t>(found.layer)].experts;
      const ExpertWork work{num_bytes, experts.num_experts, experts.num_experts_per_token};
      share = static_cast<double>(work.num_used) / work.num_experts;
      work_.experts.push_back(work);
    } else {
      work_.weight_bytes += num_bytes;
    }
    for (const WeightView& part : found.parts) {
      slot(&work_.linear, arithmetic_of(kernels_, cpu::layout_for(part))).per_token +=
          share * product_operations(part);
    }
  }
  void head(const FoundRole& found) {
    work_.ops.push_back(op_of(found));
    work_.ops.back().form = OpWork::Form::kHead;
    work_.weight_bytes += backend_.packed_bytes(found.parts, found.pack);
    for (const WeightView& part : found.parts) {
      slot(&work_.linear, arithmetic_of(kernels_, cpu::layout_for(part))).per_logit_row +=
          product_operations(part);
    }
  }

 private:
  OpWork op_of(const FoundRole& found) const {
    OpWork op;
    if (found.pack.role == WeightRole::kGateUp) op.form = OpWork::Form::kGated;
    if (found.role == Role::kQkv) op.form = OpWork::Form::kQkv;
    if (found.role == Role::kExpertGateUp || found.role == Role::kExpertDown) {
      const ExpertConfig& experts = config_.layers[static_cast<size_t>(found.layer)].experts;
      op.num_experts = experts.num_experts;
      op.num_used = experts.num_experts_per_token;
    }
    op.num_inputs = found.parts[0].num_inputs;
    for (size_t i = 0; i < found.parts.size() / static_cast<size_t>(op.num_experts); ++i) {
      const cpu::Layout layout = cpu::layout_for(found.parts[i]);
      op.parts.push_back({layout, kernels_.matmul[static_cast<size_t>(layout)].activation(),
                          found.parts[i].num_outputs});
    }
    return op;
  }

  const ModelConfig& config_;
  const Backend& backend_;
  const cpu::KernelSet& kernels_;
  StepWork& work_;
};

// The norm that a weight's outputs go through, where a layer has it.
bool norms_outputs(const FoundWeights& found, const FoundRole& role) {
  constexpr std::pair<Role, Role> kNorms[] = {{Role::kQkv, Role::kQNorm},
                                              {Role::kAttentionOut, Role::kPostAttentionNorm},
                                              {Role::kDown, Role::kPostMlpNorm}};
  return std::ranges::any_of(kNorms, [&](const auto& pair) {
    return pair.first == role.role && found.find(role.layer, pair.second) != nullptr;
  });
}

// Scores and the sum over values: a product for each of both widths.
double attention_operations(const LayerConfig& layer) {
  return 4.0 * layer.num_attention_heads * layer.head_dim;
}

// In the form that takes least, keys and values of each head made once; the index asks every
// position with each of its heads.
double latent_operations(const LayerConfig& layer) {
  const LatentConfig& latent = layer.latent;
  return 2.0 * layer.num_attention_heads * (latent.qk_head_dim() + latent.v_head_dim) +
         2.0 * latent.index_n_heads * latent.index_head_dim;
}

void set_attention_heads(const LayerConfig& layer, MixerWork* mixer) {
  mixer->num_heads = layer.num_attention_heads;
  mixer->num_kv_heads = layer.num_key_value_heads;
  mixer->head_dim = layer.head_dim;
}

// One key for all heads.
void set_latent_heads(const LayerConfig& layer, MixerWork* mixer) {
  mixer->num_heads = layer.num_attention_heads;
  mixer->num_kv_heads = 1;
  mixer->head_dim = layer.latent.v_head_dim;
}

struct PositionRow {
  MixerKind kind;
  double (*operations)(const LayerConfig& layer);  // for each position that a token sees
  void (*set_heads)(const LayerConfig& layer, MixerWork* mixer);
};
constexpr PositionRow kPositions[] = {
    {MixerKind::kAttention, attention_operations, set_attention_heads},
    {MixerKind::kLatent, latent_operations, set_latent_heads}};

// A state is decayed, asked, corrected and asked again: two operations each for every number.
constexpr double kStateOperations = 8;

void add_kept(const CacheGroup& group, const CacheLayer& kept, const Backend& backend,
              std::vector<MixerWork>* mixers) {
  MixerWork& mixer = (*mixers)[static_cast<size_t>(kept.layer_idx)];
  mixer.window = group.window;
  for (const KvPlane& plane : kept.planes) {
    const size_t num_bytes = cache_plane_bytes(plane, group.policy, backend);
    if (group.policy == CachePolicy::kState) {
      mixer.state_bytes += num_bytes;
      const size_t num_floats = num_bytes / sizeof(float);
      mixer.operations_per_token += kStateOperations * static_cast<double>(num_floats);
    } else {
      mixer.position_bytes += num_bytes / kBlockTokens;
    }
  }
}

std::vector<MixerWork> mixers_of(const ModelConfig& config, const Backend& backend,
                                 const cpu::KernelSet& kernels, KvType kv_type) {
  std::vector<MixerWork> mixers(config.layers.size());
  for (const CacheGroup& group : cache_groups_of(config, kv_type)) {
    for (const CacheLayer& kept : group.layers) add_kept(group, kept, backend, &mixers);
  }
  for (size_t i = 0; i < mixers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (layer.kv_source_layer >= 0) {
      mixers[i] = mixers[static_cast<size_t>(layer.kv_source_layer)];
    }
    for (const PositionRow& row : kPositions) {
      if (row.kind != layer.mixer) continue;
      mixers[i].operations_per_position = row.operations(layer);
      row.set_heads(layer, &mixers[i]);
    }
    if (layer.mixer == MixerKind::kAttention) {
      mixers[i].arithmetic = attention_arithmetic(kernels, kv_type);
    }
  }
  return mixers;
}

}  // namespace

MixerArithmetic attention_arithmetic(const cpu::KernelSet& kernels, KvType kv_type) {
  // Of scores by whole numbers four byte products, of weighted values three.
  constexpr MixerArithmetic kWhole{cpu::PeakKind::kInt8, 3.5};
  const bool is_whole = kv_type == KvType::kInt16 && kernels.attention_whole != nullptr;
  return is_whole ? kWhole : MixerArithmetic{};
}

ArithmeticWork arithmetic_of(const cpu::KernelSet& kernels, cpu::Layout layout) {
  const cpu::MatmulRows& rows = kernels.matmul[static_cast<size_t>(layout)];
  for (const ActivationRow& row : kActivations) {
    if (row.activation == rows.activation()) return {row.kind, row.passes, 0, 0};
  }
  return {};
}

int64_t OpWork::num_outputs() const {
  int64_t outputs = 0;
  for (const Part& part : parts) outputs += part.num_outputs;
  return outputs;
}

std::vector<cpu::Layout> StepWork::layouts() const {
  std::vector<cpu::Layout> layouts;
  for (const OpWork& op : ops) {
    for (const OpWork::Part& part : op.parts) {
      if (std::ranges::find(layouts, part.layout) == layouts.end()) layouts.push_back(part.layout);
    }
  }
  return layouts;
}

double share_met(int num_used, int num_experts, double num_tokens) {
  const double missed = 1.0 - static_cast<double>(num_used) / num_experts;
  return 1.0 - std::pow(missed, num_tokens);
}

double ExpertWork::expected_bytes(double num_tokens) const {
  return static_cast<double>(num_bytes) * share_met(num_used, num_experts, num_tokens);
}

int64_t MixerWork::visible(int64_t position) const {
  const int64_t all = position + 1;
  return window > 0 ? std::min(all, window) : all;
}

double MixerWork::positions_seen(int64_t first, int64_t count) const {
  double positions = 0;
  for (int64_t i = first; i < first + count; ++i) positions += static_cast<double>(visible(i));
  return positions;
}

double StepWork::weight_bytes_of(double num_tokens) const {
  auto bytes = static_cast<double>(weight_bytes);
  for (const ExpertWork& work : experts) bytes += work.expected_bytes(num_tokens);
  return bytes;
}

double StepWork::mixer_operations(int64_t first, int64_t count) const {
  double operations = 0;
  for (const MixerWork& mixer : mixers) {
    operations += mixer.operations_per_position * mixer.positions_seen(first, count) +
                  mixer.operations_per_token * static_cast<double>(count);
  }
  return operations;
}

double StepWork::mixer_seconds(int64_t first, int64_t count, std::span<const cpu::PeakRate> peaks,
                               uint32_t isa) const {
  const auto at_peak = [&](double operations, cpu::PeakKind kind) {
    const double peak = cpu::best_peak(peaks, kind, isa);
    return peak > 0 ? operations / peak : 0;
  };
  double seconds = 0;
  for (const MixerWork& mixer : mixers) {
    const double positions = mixer.positions_seen(first, count);
    seconds +=
        at_peak(mixer.arithmetic.passes * mixer.operations_per_position * positions,
                mixer.arithmetic.kind) +
        at_peak(mixer.operations_per_token * static_cast<double>(count), cpu::PeakKind::kF32);
  }
  return seconds;
}

double StepWork::kv_bytes(int64_t position) const {
  double bytes = 0;
  for (const MixerWork& mixer : mixers) {
    bytes +=
        static_cast<double>(mixer.position_bytes) * static_cast<double>(mixer.visible(position)) +
        2.0 * static_cast<double>(mixer.state_bytes);
  }
  return bytes;
}

double StepWork::linear_seconds(double num_tokens, double num_logit_rows,
                                std::span<const cpu::PeakRate> peaks, uint32_t isa) const {
  double seconds = 0;
  for (const ArithmeticWork& row : linear) {
    const double rate = cpu::operation_rate(peaks, row.kind, row.passes, isa);
    if (rate <= 0) continue;
    seconds += (row.per_token * num_tokens + row.per_logit_row * num_logit_rows) / rate;
  }
  return seconds;
}

Result<StepWork> step_work(const Checkpoint& checkpoint, const ModelConfig& config,
                           const Backend& backend, const cpu::KernelSet& kernels, KvType kv_type) {
  const ModelConfig plain = without_prediction(config);
  return step_work(TRY(find_weights(checkpoint, plain)), plain, backend, kernels, kv_type);
}

StepWork step_work(const FoundWeights& found, const ModelConfig& config, const Backend& backend,
                   const cpu::KernelSet& kernels, KvType kv_type) {
  StepWork work;
  WorkCounter counter(config, backend, kernels, &work);
  for (const FoundRole& role : found.roles) {
    if (role.role != Role::kHead) counter.linear(role, norms_outputs(found, role));
  }
  const FoundRole* head = found.find(kNoLayer, Role::kHead);
  counter.head(head != nullptr ? *head : *found.find(kNoLayer, Role::kEmbedding));
  work.mixers = mixers_of(config, backend, kernels, kv_type);
  work.kv_type = kv_type;
  for (const RopeConfig& rope : config.ropes) work.num_rotated += rope.rope_dims / 2;
  return work;
}

}  // namespace headrace
