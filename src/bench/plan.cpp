#include "bench/plan.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/registry.h"
#include "bench/step_points.h"
#include "model/config/read_prediction.h"
#include "model/mixers.h"
#include "model/model.h"

namespace headrace {
namespace {

constexpr int64_t kMostClients = int64_t{1} << 20;
constexpr int64_t kLargestBatch = 1024;
constexpr double kWorthDoubling = 1.1;

// The same weight as a plain tensor of this format.
WeightView in_format(const WeightView& weight, DType format) {
  const DTypeRow& row = dtype_row(format);
  if (weight.num_inputs % row.block_elements != 0) return weight;
  WeightView stored;
  stored.name = weight.name;
  stored.num_outputs = weight.num_outputs;
  stored.num_inputs = weight.num_inputs;
  stored.values = weight.values;  // `data` says that there is one; nothing is read
  stored.values.dtype = format;
  stored.values.rank = 2;
  stored.values.shape = {weight.num_outputs, weight.num_inputs};
  stored.values.num_bytes = static_cast<size_t>(weight.num_outputs * weight.num_inputs) /
                            row.block_elements * row.block_bytes;
  return stored;
}

void set_format(FoundWeights& found, DType format) {
  for (FoundRole& role : found.roles) {
    if (role.pack.role == WeightRole::kEmbedding) continue;
    for (WeightView& part : role.parts) part = in_format(part, format);
  }
}

std::vector<GroupForecast> groups_of(const ModelConfig& config, KvType type,
                                     const Backend& backend) {
  std::vector<GroupForecast> forecasts;
  for (const CacheGroup& group : cache_groups_of(config, type)) {
    GroupForecast forecast{group.policy, group.window, 0, 0};
    int last_layer = -1;  // a layer's state may come in several pieces
    for (const CacheLayer& layer : group.layers) {
      if (layer.layer_idx != last_layer) ++forecast.num_layers;
      last_layer = layer.layer_idx;
      for (const KvPlane& plane : layer.planes) {
        const size_t bytes = cache_plane_bytes(plane, group.policy, backend);
        forecast.bytes += group.policy == CachePolicy::kState ? bytes : bytes / kBlockTokens;
      }
    }
    forecasts.push_back(forecast);
  }
  return forecasts;
}

}  // namespace

std::string_view StepForecast::bound_by() const {
  if (memory_s >= arithmetic_s()) return "reads";
  return linear_s >= mixer_s ? "products" : "attention";
}

Result<KvType> default_kv_type(const MachineFile& machine) {
  const cpu::KernelUnit* unit = TRY(cpu::select_unit("auto", machine.isa));
  return default_kv_type(cpu::select_kernels(*unit, machine.isa,
                                             cpu::coded_activations(ActivationArithmetic::kExact)));
}

Result<Forecast> Forecast::create(const Checkpoint& checkpoint, const ModelConfig& config,
                                  const MachineFile& machine, const PlanRequest& request,
                                  std::optional<DType> format) {
  // Of the back end only sizes are asked, which are the same for all instruction sets.
  const auto backend = TRY(create_cpu_backend(
      {.isa = "reference", .num_threads = 1, .activations = request.activations}));
  const cpu::KernelUnit* unit = TRY(cpu::select_unit("auto", machine.isa));
  const cpu::KernelSet kernels =
      cpu::select_kernels(*unit, machine.isa, cpu::coded_activations(request.activations));
  FoundWeights found = TRY(find_weights(checkpoint, without_prediction(config)));
  if (format) set_format(found, *format);
  Forecast forecast(machine);
  forecast.request_ = request;
  forecast.work_ = step_work(found, config, *backend, kernels, request.kv_type);
  ModelOptions options;
  options.max_batch_tokens = request.chunk;
  options.kv_type = request.kv_type;
  forecast.memory_ = TRY(Model::memory_plan(checkpoint, config, *backend, options));
  if (format) forecast.memory_.weights = packed_bytes(found, *backend);
  forecast.groups_ = groups_of(config, request.kv_type, *backend);
  forecast.isa_ = matmul_isa(kernels);
  forecast.longest_ = config.max_position_embeddings;
  return forecast;
}

void Forecast::set_seconds(double working_set, double tokens, double logit_rows,
                           double mixer_operations, double mixer_seconds,
                           StepForecast* step) const {
  for (const ArithmeticWork& row : work_.linear) {
    step->operations += row.per_token * tokens + row.per_logit_row * logit_rows;
  }
  step->operations += mixer_operations;
  step->memory_s = step->bytes / machine_->bandwidth(working_set);
  step->linear_s = work_.linear_seconds(tokens, logit_rows, machine_->limits.peaks, isa_);
  step->mixer_s = mixer_seconds;
}

StepForecast Forecast::decode(int64_t batch, int64_t depth) const {
  const auto count = static_cast<double>(batch);
  StepForecast step;
  step.bytes = work_.weight_bytes_of(count) + count * work_.kv_bytes(depth);
  set_seconds(step.bytes, count, count, count * work_.mixer_operations(depth, 1),
              count * work_.mixer_seconds(depth, 1, machine_->limits.peaks, isa_), &step);
  step.expected = expected().decode(batch, depth);
  return step;
}

StepForecast Forecast::prefill(int64_t num_tokens) const {
  const auto count = static_cast<double>(num_tokens);
  const auto chunk = static_cast<double>(request_.chunk);
  const double step_bytes = work_.weight_bytes_of(std::min(count, chunk));
  StepForecast step;
  step.bytes = std::ceil(count / chunk) * step_bytes;
  for (int64_t end = request_.chunk; end < num_tokens; end += request_.chunk) {
    step.bytes += work_.kv_bytes(end);
  }
  set_seconds(step_bytes, count, 1, work_.mixer_operations(0, num_tokens),
              work_.mixer_seconds(0, num_tokens, machine_->limits.peaks, isa_), &step);
  step.expected = expected().prefill(num_tokens, request_.chunk);
  return step;
}

size_t Forecast::total_bytes(int64_t clients, int64_t context) const {
  return memory_.total(static_cast<size_t>(clients) *
                       memory_.kv.bytes_for(context, request_.chunk));
}

int64_t Forecast::longest_context(int64_t clients) const {
  int64_t fitting = 0, beyond = longest_ + 1;
  while (beyond - fitting > 1) {
    const int64_t middle = fitting + (beyond - fitting) / 2;
    (fits(clients, middle) ? fitting : beyond) = middle;
  }
  return fitting;
}

int64_t Forecast::most_clients(int64_t context) const {
  if (!fits(1, context)) return 0;
  int64_t fitting = 1, beyond = kMostClients + 1;
  while (beyond - fitting > 1) {
    const int64_t middle = fitting + (beyond - fitting) / 2;
    (fits(middle, context) ? fitting : beyond) = middle;
  }
  return fitting;
}

int64_t Forecast::best_batch(int64_t depth) const {
  int64_t batch = 1;
  while (batch < kLargestBatch && fits(2 * batch, depth + 1) &&
         decode_tokens_per_s(2 * batch, depth) >=
             kWorthDoubling * decode_tokens_per_s(batch, depth)) {
    batch *= 2;
  }
  return batch;
}

double price_of_million(double price_per_hour, double tokens_per_s) {
  return price_per_hour / 3600 / tokens_per_s * 1e6;
}

}  // namespace headrace
