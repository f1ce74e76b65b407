#include "verify/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "checkpoint/adapter_files.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/weight_rows.h"
#include "verify/sequence_runner.h"

namespace headrace {
namespace {

std::vector<float> floats_of(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
  return values;
}

// Largest difference; infinite where a value is not finite.
double max_difference(std::span<const float> found, std::span<const float> expected) {
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - expected[i]);
    if (!(difference <= largest)) largest = difference;
    if (!std::isfinite(difference)) return INFINITY;
  }
  return largest;
}

// The reference of the gated delta rule sums over blocks of tokens: it is further from float64.
double golden_tolerance(const ModelConfig& config) {
  const bool has_delta =
      std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
        return layer.mixer == MixerKind::kGatedDelta || layer.mixer == MixerKind::kChannelDelta;
      });
  return has_delta ? 10 * kGoldenTolerance : kGoldenTolerance;
}

class Verifier {
 public:
  Verifier(const Golden& golden, Model& model, Backend& backend, const Adapter* adapter = nullptr)
      : golden_(golden), model_(model), backend_(backend), adapter_(adapter) {
    report_.folder = golden.folder;
    report_.tolerance_share = golden_tolerance(model.config());
    report_.tolerance = report_.tolerance_share * golden.max_abs_logit;
  }

  Result<GoldenReport> run();
  // Every row of logits that was compared, in order.
  const std::vector<float>& logits() const { return logits_; }

 private:
  Status check_prompt(size_t index);
  Status check_ids(const GoldenPrompt& prompt, size_t index) const;
  void compare_logits(const GoldenPrompt& prompt, size_t index, SequenceRunner& runner);
  void compare_hidden(const GoldenPrompt& prompt, size_t index);
  void compare_greedy(const GoldenPrompt& prompt, size_t index, SequenceRunner& runner);
  void fail(std::string reason) {
    if (report_.error.empty()) report_.error = std::move(reason);
  }
  HiddenTap hidden_tap();

  const Golden& golden_;
  Model& model_;
  Backend& backend_;
  const Adapter* adapter_;  // or null
  GoldenReport report_;
  std::vector<float> logits_;
  std::vector<std::vector<float>> hidden_;  // [num_layers + 1] rows as the reference numbers them
};

Status Verifier::check_ids(const GoldenPrompt& prompt, size_t index) const {
  const int64_t vocab_size = model_.config().vocab_size;
  for (int32_t id : prompt.ids) {
    if (id < vocab_size) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "prompt {} holds id {}, but the vocabulary has {} entries", index, id,
                      vocab_size);
  }
  if (!prompt.logits.empty() && prompt.logits.dim(1) != vocab_size) {
    return make_error(ErrorCode::kInvalidArgument,
                      "prompt{}.logits has {} columns, but the vocabulary has {} entries", index,
                      prompt.logits.dim(1), vocab_size);
  }
  return {};
}

// The reference's list: embeddings, then after each layer, the last one after the final norm; of a
// network of mixers alone after each layer, then after the final norm.
HiddenTap Verifier::hidden_tap() {
  const int num_layers = model_.config().num_layers();
  const int left_out = model_.config().layers.front().mlp == MlpKind::kNone ? -1 : num_layers - 1;
  hidden_.assign(static_cast<size_t>(num_layers) + 1, {});
  return [=, this](int layer, const float* rows, int64_t num_rows, int64_t width) {
    if (layer == left_out) return;
    auto& kept = hidden_[static_cast<size_t>(layer < left_out ? layer + 1 : layer)];
    kept.insert(kept.end(), rows, rows + num_rows * width);
  };
}

void Verifier::compare_logits(const GoldenPrompt& prompt, size_t index, SequenceRunner& runner) {
  std::vector<float> expected;
  if (!prompt.logits.empty()) expected = floats_of(prompt.logits);
  const auto vocab_size = static_cast<size_t>(model_.config().vocab_size);
  size_t row = 0;
  const auto visit = [&](int64_t position, std::span<const float> found) {
    while (row < prompt.positions.size() && prompt.positions[row] == position &&
           !expected.empty()) {
      const auto wanted = std::span(expected).subspan(row * vocab_size, vocab_size);
      const double difference = max_difference(found, wanted);
      logits_.insert(logits_.end(), found.begin(), found.end());
      report_.max_difference = std::max(report_.max_difference, difference);
      ++report_.positions;
      ++row;
      if (difference <= report_.tolerance) continue;
      fail(fmt::format("prompt {}: logits at position {} differ by {:.3g}, allowed is {:.3g}",
                       index, position, difference, report_.tolerance));
    }
  };
  const int64_t first =
      prompt.positions.empty() ? static_cast<int64_t>(prompt.ids.size()) : prompt.positions[0];
  runner.append(prompt.ids, first, visit, prompt.hidden.empty() ? HiddenTap{} : hidden_tap());
  if (!prompt.hidden.empty()) compare_hidden(prompt, index);
}

void Verifier::compare_hidden(const GoldenPrompt& prompt, size_t index) {
  const std::vector<float> expected = floats_of(prompt.hidden);
  const size_t layer_size = prompt.ids.size() * static_cast<size_t>(model_.config().hidden_size);
  if (expected.size() != layer_size * hidden_.size()) {
    return fail(fmt::format("prompt{}.hidden_states is {}, but [{}, {}, {}] is needed", index,
                            prompt.hidden.shape_string(), hidden_.size(), prompt.ids.size(),
                            model_.config().hidden_size));
  }
  for (size_t layer = 0; layer < hidden_.size(); ++layer) {
    const auto wanted = std::span(expected).subspan(layer * layer_size, layer_size);
    double largest = 0;
    for (float value : wanted) largest = std::max(largest, static_cast<double>(std::abs(value)));
    const double difference = max_difference(hidden_[layer], wanted);
    if (difference <= report_.tolerance_share * largest) continue;
    return fail(fmt::format("prompt {}: hidden states {} differ by {:.3g}, allowed is {:.3g}",
                            index, layer, difference, report_.tolerance_share * largest));
  }
}

void Verifier::compare_greedy(const GoldenPrompt& prompt, size_t index, SequenceRunner& runner) {
  runner.restart();
  const std::vector<int32_t> found =
      runner.generate_greedy(prompt.ids, static_cast<int>(prompt.greedy.size()));
  if (found == prompt.greedy) return;
  report_.greedy_equal = false;
  size_t first = 0;
  while (found[first] == prompt.greedy[first]) ++first;
  fail(fmt::format("prompt {}: greedy id {} is {}, expected {}", index, first, found[first],
                   prompt.greedy[first]));
}

Status Verifier::check_prompt(size_t index) {
  const GoldenPrompt& prompt = golden_.prompts[index];
  TRY(check_ids(prompt, index));
  const auto max_tokens = static_cast<int64_t>(prompt.ids.size() + prompt.greedy.size());
  SequenceRunner runner = TRY(SequenceRunner::create(model_, backend_, max_tokens));
  if (adapter_ != nullptr) runner.use(adapter_->packed.get());
  if (!prompt.logits.empty() || !prompt.hidden.empty()) compare_logits(prompt, index, runner);
  if (!prompt.greedy.empty()) compare_greedy(prompt, index, runner);
  ++report_.prompts;
  return {};
}

Result<GoldenReport> Verifier::run() {
  for (size_t i = 0; i < golden_.prompts.size(); ++i) TRY(check_prompt(i));
  report_.passed = report_.error.empty() && report_.prompts > 0;
  return report_;
}

// Distance in representable float32 values; huge for different signs.
int64_t ulps_between(float a, float b) {
  int32_t x, y;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return a == b ? 0 : std::abs(int64_t{x} - int64_t{y});
}

// The most units in the last place by which a weight's values differ from these.
Result<int64_t> worst_difference(const WeightView& weight, const TensorView& values,
                                 const std::string& name) {
  if (values.num_elements() != weight.num_outputs * weight.num_inputs ||
      values.dtype != DType::kF32) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {} {}, but F32 [{}, {}] is needed", name,
                      dtype_name(values.dtype), values.shape_string(), weight.num_outputs,
                      weight.num_inputs);
  }
  const std::vector<float> expected = floats_of(values);
  std::vector<float> found(expected.size());
  dequantise_rows(weight, 0, weight.num_outputs, found.data());
  int64_t worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, ulps_between(found[i], expected[i]));
  }
  return worst;
}

// "dequantised.NAME": the exact values of weight NAME, or of a stack of experts.
Status check_dequantised(const Golden& golden, const Checkpoint& checkpoint, GoldenReport* report) {
  static constexpr std::string_view kPrefix = "dequantised.";
  // Names are those of safetensors files.
  if (golden.expected == nullptr || checkpoint.kind() == CheckpointKind::kGguf) return {};
  const Quantisation quantisation = TRY(read_quantisation(checkpoint));
  for (const std::string& name : golden.expected->names()) {
    if (!name.starts_with(kPrefix)) continue;
    const TensorView& tensor = *golden.expected->find(name);
    const std::string_view base = std::string_view(name).substr(kPrefix.size());
    const bool stacked = tensor.rank == 3;
    int64_t worst = 0;
    for (int64_t expert = 0; expert < (stacked ? tensor.dim(0) : 1); ++expert) {
      const WeightView weight =
          stacked ? TRY(find_expert_weight(checkpoint, quantisation, base, expert))
                  : TRY(find_weight(checkpoint, quantisation, base));
      const TensorView values = stacked ? tensor.slice(expert) : tensor;
      worst = std::max(worst, TRY(worst_difference(weight, values, name)));
    }
    if (worst <= 1 || !report->error.empty()) continue;
    report->passed = false;
    report->error = fmt::format("{} differs by {} units in the last place", name, worst);
  }
  return {};
}

}  // namespace

Result<GoldenReport> verify_golden_adapter(const Golden& golden, const Checkpoint& checkpoint,
                                           Backend& backend, const ModelOptions& options) {
  const std::unique_ptr<Model> model = TRY(Model::load(checkpoint, backend, options));
  const AdapterFolder files = TRY(read_adapter_folder(golden.folder));
  const std::unique_ptr<const Adapter> adapter =
      TRY(model->load_adapter({golden.folder, files.config, files.bytes()}));
  return Verifier(golden, *model, backend, adapter.get()).run();
}

Result<GoldenReport> verify_golden(const Golden& golden, const Checkpoint& checkpoint,
                                   Backend& backend, const ModelOptions& options) {
  const std::unique_ptr<Model> model = TRY(Model::load(checkpoint, backend, options));
  return Verifier(golden, *model, backend).run();
}

Result<GoldenReport> verify_golden_folder(const std::string& folder, Backend& backend,
                                          const ModelOptions& options) {
  const Golden golden = TRY(read_golden(folder));
  if (!golden.base.empty()) {
    const std::unique_ptr<Checkpoint> base = TRY(open_folder(golden.base));
    return verify_golden_adapter(golden, *base, backend, options);
  }
  const std::unique_ptr<Checkpoint> checkpoint = TRY(open_folder(folder));
  const std::unique_ptr<Model> model = TRY(Model::load(*checkpoint, backend, options));
  Verifier verifier(golden, *model, backend);
  GoldenReport report = TRY(verifier.run());
  TRY(check_dequantised(golden, *checkpoint, &report));
  const std::optional<std::string> newer = checkpoint->sidecar("config.v5.json");
  if (!newer) return report;
  const auto renewed = with_sidecar(*checkpoint, "config.json", *newer);
  const std::unique_ptr<Model> again = TRY(Model::load(*renewed, backend, options));
  Verifier second(golden, *again, backend);
  const GoldenReport second_report = TRY(second.run());
  if (!report.passed) return report;
  if (!second_report.passed) {
    report.passed = false;
    report.error = "with config.v5.json: " + second_report.error;
  } else if (verifier.logits() != second.logits()) {
    report.passed = false;
    report.error = "config.json and config.v5.json give different logits";
  }
  return report;
}

}  // namespace headrace
