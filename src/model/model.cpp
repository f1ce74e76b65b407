#include "model/model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "model/config/check_config.h"
#include "model/config/config_files.h"
#include "model/config/read_prediction.h"
#include "model/decoder.h"
#include "model/mixers.h"
#include "model/read_adapter.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace headrace {
namespace {

constexpr size_t kOtherBytes = size_t{48} << 20;
constexpr size_t kBytesPerToken = 400;  // of a tokenizer, per token of its vocabulary

bool has_prediction(const ModelConfig& config, const FoundWeights& found) {
  return !config.prediction.empty() && found.lacks_prediction.empty();
}

MemoryPlan plan_memory(const ModelConfig& config, const FoundWeights& found, const Backend& backend,
                       const ModelOptions& options) {
  size_t logits_of_token = static_cast<size_t>(options.max_logit_rows) * sizeof(float);
  MemoryPlan plan;
  plan.weights = packed_bytes(found, backend);
  plan.kv = plan_cache(cache_groups_of(config, options.kv_type), backend);
  plan.workspace = Workspace::num_bytes(config, options);
  if (has_prediction(config, found)) {
    const ModelConfig head = prediction_network(config);
    plan.kv.block_bytes += plan_cache(cache_groups_of(head, options.kv_type), backend).block_bytes;
    plan.workspace += Workspace::num_bytes(head, options);
    logits_of_token *= 2;
  }
  plan.other =
      kOtherBytes + static_cast<size_t>(config.vocab_size) * (kBytesPerToken + logits_of_token);
  return plan;
}

// Of a head that the file should have.
void tell_lack(const Checkpoint& checkpoint, const ModelConfig& config, const FoundWeights& found) {
  if (found.lacks_prediction.empty()) return;
  LOG(kWarning, "{} has only a part of a {} head for further tokens, which is left out: {}",
      checkpoint.path(), config.family, found.lacks_prediction);
}

class DecoderModel : public Model {
 public:
  // weights.shared: of a head, the weights of the network that keeps it.
  DecoderModel(ModelConfig config, const ModelOptions& options, Weights weights,
               Workspace workspace, Backend& backend)
      : config_(std::move(config)),
        options_(options),
        weights_(std::move(weights)),
        workspace_(std::move(workspace)),
        backend_(backend),
        decoder_(config_, weights_, backend, workspace_) {}

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::vector<CacheGroup> cache_groups() const override {
    return cache_groups_of(config_, options_.kv_type);
  }

  void forward(const Batch& batch, KvStore& kv, const StepOutput& output,
               const HiddenTap& tap) override {
    CHECK(batch.token_ids.size() <= static_cast<size_t>(options_.max_batch_tokens),
          "{} tokens, but the workspace holds {}", batch.token_ids.size(),
          options_.max_batch_tokens);
    const size_t head_rows = batch.logit_rows.size() + batch.best_rows.size();
    CHECK(head_rows <= static_cast<size_t>(options_.max_logit_rows),
          "{} rows of logits, but the workspace holds {}", head_rows, options_.max_logit_rows);
    if (batch.token_ids.empty()) return;
    decoder_.forward(batch, kv, output, tap);
  }

  // head: its layer's weights are still among those of the network.
  Status keep_prediction(const ModelConfig& head) {
    Workspace workspace = TRY(Workspace::create(head, options_, backend_));
    prediction_ = std::make_unique<DecoderModel>(head, options_, take_prediction(&weights_),
                                                 std::move(workspace), backend_);
    return {};
  }
  Model* prediction() override { return prediction_.get(); }

  int64_t rope_epoch(int64_t num_tokens) const override { return decoder_.rope_epoch(num_tokens); }

  Result<std::unique_ptr<const Adapter>> load_adapter(const AdapterFiles& files) const override {
    return read_adapter(files, config_, weights_, backend_);
  }

  const DeviceMemory* weight_memory() const override { return &weights_.memory; }

  std::span<const uint64_t> expert_rows() const override {
    const auto count = static_cast<size_t>(num_experts_before(config_, config_.num_layers()));
    if (count == 0) return {};
    return backend_.read_view(workspace_.expert_rows, count);
  }

 private:
  const ModelConfig config_;
  const ModelOptions options_;
  Weights weights_;
  Workspace workspace_;
  Backend& backend_;
  Decoder decoder_;                           // refers to the four above
  std::unique_ptr<DecoderModel> prediction_;  // refers to the weights; null: no such head
};

}  // namespace

Result<std::unique_ptr<const Adapter>> Model::load_adapter(const AdapterFiles& files) const {
  return make_error(ErrorCode::kUnsupported, "{}: this model takes no adapters", files.name);
}

Result<ModelConfig> Model::read_config(const Checkpoint& checkpoint) {
  return checkpoint.kind() == CheckpointKind::kGguf ? read_config_gguf(checkpoint)
                                                    : read_config_json(checkpoint);
}

Result<MemoryPlan> Model::memory_plan(const Checkpoint& checkpoint, const Backend& backend,
                                      const ModelOptions& options) {
  return memory_plan(checkpoint, TRY(read_config(checkpoint)), backend, options);
}

Result<MemoryPlan> Model::memory_plan(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const Backend& backend, const ModelOptions& options) {
  TRY(check_config(config));
  const ModelConfig planned = options.prediction ? config : without_prediction(config);
  return plan_memory(planned, TRY(find_weights(checkpoint, planned)), backend, options);
}

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, Backend& backend,
                                           const ModelOptions& options,
                                           const LoadProgress& progress) {
  return load(checkpoint, TRY(read_config(checkpoint)), backend, options, progress);
}

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, ModelConfig config,
                                           Backend& backend, const ModelOptions& options,
                                           const LoadProgress& progress) {
  TRY(check_config(config));
  if (!options.prediction) config.prediction.clear();
  const FoundWeights found = TRY(find_weights(checkpoint, config));
  Workspace workspace = TRY(Workspace::create(config, options, backend));
  Weights weights = TRY(load_weights(checkpoint, found, backend, options.weight_cache, progress));
  TRY(backend.reserve(std::max(options.max_batch_tokens, options.max_logit_rows)));
  checkpoint.release_pages();
  ModelConfig head;
  const bool has_head = has_prediction(config, found);
  if (has_head) head = prediction_network(config);
  tell_lack(checkpoint, config, found);
  config.prediction.clear();
  auto model = std::make_unique<DecoderModel>(std::move(config), options, std::move(weights),
                                              std::move(workspace), backend);
  if (has_head) TRY(model->keep_prediction(head));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace headrace
