#include "bench/step_work.h"

#include <algorithm>

#include "backend/cpu/kernels/pack.h"
#include "model/weights.h"

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
    {cpu::ActivationType::kInt16, cpu::PeakKind::kInt8, 2},  // value and rest, an int8 product each
    {cpu::ActivationType::kBF16, cpu::PeakKind::kBF16, 1},
    {cpu::ActivationType::kBF16x2, cpu::PeakKind::kBF16, 2},
};

// The arithmetic that a weight is multiplied with.
ArithmeticWork arithmetic_of(const cpu::KernelSet& kernels, const WeightView& weight) {
  const cpu::MatmulRows& rows = kernels.matmul[static_cast<size_t>(cpu::layout_for(weight))];
  for (const ActivationRow& row : kActivations) {
    if (row.activation == rows.activation()) return {row.kind, row.passes, 0, 0};
  }
  return {};
}

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
  WorkCounter(const Backend& backend, const cpu::KernelSet& kernels, StepWork* work)
      : backend_(backend), kernels_(kernels), work_(*work) {}

  void linear(const FoundRole& found) {
    count(found, [](ArithmeticWork& work) -> double& { return work.per_token; });
  }
  void head(const FoundRole& found) {
    count(found, [](ArithmeticWork& work) -> double& { return work.per_logit_row; });
  }

 private:
  template <typename Field>
  void count(const FoundRole& found, const Field& field) {
    if (found.parts.empty()) return;
    work_.weight_bytes += backend_.packed_bytes(found.parts, found.pack);
    for (const WeightView& part : found.parts) {
      field(slot(&work_.linear, arithmetic_of(kernels_, part))) += product_operations(part);
    }
  }

  const Backend& backend_;
  const cpu::KernelSet& kernels_;
  StepWork& work_;
};

int64_t visible(const LayerConfig& layer, int64_t position) {
  const int64_t all = position + 1;
  return layer.sliding_window > 0 ? std::min(all, layer.sliding_window) : all;
}

}  // namespace

double StepWork::attention_operations(int64_t first, int64_t count) const {
  double operations = 0;
  for (const LayerConfig& layer : layers) {
    double positions = 0;
    for (int64_t i = first; i < first + count; ++i) {
      positions += static_cast<double>(visible(layer, i));
    }
    operations += 4.0 * layer.num_attention_heads * layer.head_dim * positions;
  }
  return operations;
}

double StepWork::kv_bytes(int64_t position) const {
  const double per_layer = static_cast<double>(kv_position_bytes) /
                           static_cast<double>(std::max<size_t>(layers.size(), 1));
  double bytes = 0;
  for (const LayerConfig& layer : layers) {
    bytes += per_layer * static_cast<double>(visible(layer, position));
  }
  return bytes;
}

double StepWork::linear_seconds(double num_tokens, double num_logit_rows,
                                std::span<const cpu::PeakRate> peaks, uint32_t isa) const {
  double seconds = 0;
  for (const ArithmeticWork& row : linear) {
    const double peak = cpu::best_peak(peaks, row.kind, isa);
    if (peak <= 0) continue;
    const double operations = row.per_token * num_tokens + row.per_logit_row * num_logit_rows;
    seconds += operations * row.passes / peak;
  }
  return seconds;
}

Result<StepWork> step_work(const Checkpoint& checkpoint, const ModelConfig& config,
                           const Backend& backend, const cpu::KernelSet& kernels, KvType kv_type) {
  const FoundWeights found = TRY(find_weights(checkpoint, config));
  StepWork work;
  work.layers = config.layers;
  WorkCounter counter(backend, kernels, &work);
  for (const FoundRole& role : found.roles) {
    if (role.layer != kNoLayer) counter.linear(role);
  }
  const FoundRole* head = found.find(kNoLayer, Role::kHead);
  counter.head(head != nullptr ? *head : *found.find(kNoLayer, Role::kEmbedding));
  for (const LayerConfig& layer : config.layers) {
    const KvShape shape{kv_type, layer.num_key_value_heads, layer.head_dim};
    work.kv_position_bytes += backend.kv_layer_bytes(shape) / kBlockTokens;
  }
  return work;
}

}  // namespace headrace
