#include "model/read_adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/digest.h"
#include "checkpoint/safetensors.h"
#include "model/adapter_config.h"
#include "model/adapter_targets.h"

namespace headrace {
namespace {

constexpr std::string_view kPrefixes[] = {"base_model.model.", "base_model."};

// What the tensors of a module are called behind its name. Longer endings come before their ends.
enum class Part : uint8_t {
  kA,
  kB,
  kBBias,
  kTableA,
  kTableB,
  kMagnitude,
  kBaseWeight,
  kBaseBias,
  kCount,
};
constexpr size_t kNumParts = static_cast<size_t>(Part::kCount);
struct Ending {
  std::string_view text;
  Part part;
};
constexpr Ending kEndings[] = {{".lora_A.weight", Part::kA},
                               {".lora_B.weight", Part::kB},
                               {".lora_B.bias", Part::kBBias},
                               {".lora_embedding_A", Part::kTableA},
                               {".lora_embedding_B", Part::kTableB},
                               {".lora_magnitude_vector.weight", Part::kMagnitude},
                               {".lora_magnitude_vector", Part::kMagnitude},
                               {".base_layer.weight", Part::kBaseWeight},
                               {".base_layer.bias", Part::kBaseBias},
                               {".weight", Part::kBaseWeight},
                               {".bias", Part::kBaseBias}};

// The tensors of one module.
struct ModuleTensors {
  const TensorView* parts[kNumParts] = {};
  std::string names[kNumParts];

  const TensorView* operator[](Part part) const { return parts[static_cast<size_t>(part)]; }
  const std::string& name(Part part) const { return names[static_cast<size_t>(part)]; }
};

// "model.layers.0.mlp.experts" of "model.layers.0.mlp.experts.base_layer": modules that hold
// several adapted tensors are wrapped once for each.
std::string_view without_wrappers(std::string_view module) {
  constexpr std::string_view kWrapper = ".base_layer";
  while (module.ends_with(kWrapper)) module.remove_suffix(kWrapper.size());
  return module;
}

class AdapterReader {
 public:
  AdapterReader(const Checkpoint& file, const AdapterConfig& config, const ModelConfig& model,
                const Weights& weights)
      : file_(file),
        config_(config),
        model_(model),
        tied_(weights.network[Role::kHead].weight == nullptr),
        targets_(model, weights) {}

  Result<std::vector<WeightDelta>> read();
  int64_t rank() const { return rank_; }

 private:
  // One module's low-rank product, as float32.
  struct Product {
    std::span<const float> a, b;
    int64_t rank = 0;
    float scale = 1.0f;
  };

  Status sort_tensors();
  Status read_module(const std::string& name, const ModuleTensors& tensors);
  Status read_linear(const std::string& name, const ModuleTensors& tensors,
                     const AdapterModule& module);
  Status read_stack(std::string_view name, const ModuleTensors& tensors);
  Status read_table(const std::string& name, const ModuleTensors& tensors,
                    const AdapterModule& module);
  Status read_replacement(const ModuleTensors& tensors, const AdapterModule& module);
  Status tie_head(const WeightDelta& table);
  Result<Product> product_of(std::string_view name, const ModuleTensors& tensors,
                             const AdapterModule& module);
  Result<std::span<const float>> values(const ModuleTensors& tensors, Part part,
                                        std::span<const int64_t> shape);
  Result<int64_t> checked_rank(std::string_view name, const ModuleTensors& tensors, Part part,
                               int64_t rank) const;
  Error no_module(const std::string& name, const ModuleTensors& tensors) const;
  WeightDelta delta_of(const AdapterTarget& target, const Product& product, int64_t module_outputs);
  std::span<const float> picked(std::span<const float> values, const AdapterTarget& target,
                                int64_t width);
  Status add_vectors(const ModuleTensors& tensors, const AdapterModule& module,
                     const AdapterTarget& target, WeightDelta* delta);
  Status check_overlaps() const;
  std::span<float> room(int64_t count) { return rooms_.emplace_back(static_cast<size_t>(count)); }

  const Checkpoint& file_;
  const AdapterConfig& config_;
  const ModelConfig& model_;
  const bool tied_;  // the head is the table
  const AdapterTargets targets_;
  std::map<std::string, ModuleTensors> modules_;
  std::deque<std::vector<float>> rooms_;  // of what deltas refer to
  std::vector<WeightDelta> deltas_;
  int64_t rank_ = 0;
};

Status AdapterReader::sort_tensors() {
  for (const std::string& name : file_.names()) {
    std::string_view rest = name;
    for (const std::string_view prefix : kPrefixes) {
      if (!rest.starts_with(prefix)) continue;
      rest.remove_prefix(prefix.size());
      break;
    }
    const auto* ending = std::find_if(std::begin(kEndings), std::end(kEndings),
                                      [&](const Ending& e) { return rest.ends_with(e.text); });
    if (ending == std::end(kEndings) || rest.size() == ending->text.size()) {
      return make_error(ErrorCode::kUnsupported,
                        "tensor {} is none that adapters have (lora_A, lora_B, lora_embedding_A, "
                        "lora_embedding_B, lora_magnitude_vector, weight, bias)",
                        name);
    }
    rest.remove_suffix(ending->text.size());
    const auto part = static_cast<size_t>(ending->part);
    ModuleTensors& module = modules_[std::string(rest)];
    if (module.parts[part] != nullptr) {
      return make_error(ErrorCode::kCorrupt, "tensors {} and {} are the same thing",
                        module.names[part], name);
    }
    module.parts[part] = file_.find(name);
    module.names[part] = name;
  }
  return {};
}

// All elements as float32, if the tensor has this shape and they are finite. Nothing is made before
// the shape is checked.
Result<std::span<const float>> AdapterReader::values(const ModuleTensors& tensors, Part part,
                                                     std::span<const int64_t> shape) {
  const TensorView& tensor = *tensors[part];
  const DTypeRow& dtype = dtype_row(tensor.dtype);
  const bool fits = tensor.rank == static_cast<int>(shape.size()) &&
                    std::equal(shape.begin(), shape.end(), tensor.shape.begin());
  const bool is_float =
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  if (!fits || !is_float) {
    return make_error(
        ErrorCode::kInvalidArgument, "tensor {} is {} {}, but [{}] of F32, F16 or BF16 is needed",
        tensors.name(part), dtype.name, tensor.shape_string(), fmt::join(shape, ", "));
  }
  const std::span<float> out = room(tensor.num_elements());
  dtype.dequantise(tensor.data, tensor.num_elements() / dtype.block_elements, out.data());
  if (!std::all_of(out.begin(), out.end(), [](float value) { return std::isfinite(value); })) {
    return make_error(ErrorCode::kCorrupt, "tensor {} holds a value that is not a finite number",
                      tensors.name(part));
  }
  return std::span<const float>(out);
}

Result<int64_t> AdapterReader::checked_rank(std::string_view name, const ModuleTensors& tensors,
                                            Part part, int64_t rank) const {
  const int64_t wanted = TRY(config_.rank_of(name));
  if (rank == wanted) return rank;
  return make_error(ErrorCode::kInvalidArgument,
                    "tensor {} is {}: of rank {}, but the configuration says {}",
                    tensors.name(part), tensors[part]->shape_string(), rank, wanted);
}

Error AdapterReader::no_module(const std::string& name, const ModuleTensors& tensors) const {
  const std::string* tensor = nullptr;
  for (size_t i = 0; i < kNumParts && tensor == nullptr; ++i) {
    if (tensors.parts[i] != nullptr) tensor = &tensors.names[i];
  }
  return make_error(ErrorCode::kUnsupported,
                    "tensor {} changes {}, which is no linear layer or embedding of this {} "
                    "network that can be adapted",
                    *tensor, name, model_.family);
}

Status AdapterReader::read_module(const std::string& name, const ModuleTensors& tensors) {
  const std::string plain(without_wrappers(name));
  const AdapterModule* module = targets_.find(plain);
  if (module == nullptr) {
    if (tensors[Part::kA] != nullptr && tensors[Part::kB] != nullptr) {
      return read_stack(plain, tensors);
    }
    return no_module(plain, tensors);
  }
  if (module->targets.front().of_table) return read_table(plain, tensors, *module);
  return read_linear(plain, tensors, *module);
}

Result<AdapterReader::Product> AdapterReader::product_of(std::string_view name,
                                                         const ModuleTensors& tensors,
                                                         const AdapterModule& module) {
  const bool of_table = module.targets.front().of_table;
  const Part a = of_table ? Part::kTableA : Part::kA, b = of_table ? Part::kTableB : Part::kB;
  if (tensors[a] == nullptr && tensors[b] == nullptr) return Product{};
  if (tensors[a] == nullptr || tensors[b] == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "tensor {} comes without its other half",
                      tensors.name(tensors[a] == nullptr ? b : a));
  }
  const int64_t rank =
      TRY(checked_rank(name, tensors, a, tensors[a]->rank == 2 ? tensors[a]->dim(0) : 0));
  const int64_t width = of_table ? module.num_outputs : module.num_inputs;
  const int64_t height = of_table ? module.num_inputs : module.num_outputs;
  Product product;
  product.rank = rank;
  product.a = TRY(values(tensors, a, std::array{rank, width}));
  product.b = TRY(values(tensors, b, std::array{height, rank}));
  product.scale = TRY(config_.scale_of(name, rank));
  rank_ = std::max(rank_, rank);
  return product;
}

// Rows of `width` in the order that the target has them.
std::span<const float> AdapterReader::picked(std::span<const float> values,
                                             const AdapterTarget& target, int64_t width) {
  if (values.empty() || target.rows.empty()) return values;
  const std::span<float> out = room(target.num_outputs * width);
  for (int64_t i = 0; i < target.num_outputs; ++i) {
    std::copy_n(values.begin() + target.row(i) * width, width, out.begin() + i * width);
  }
  return out;
}

WeightDelta AdapterReader::delta_of(const AdapterTarget& target, const Product& product,
                                    int64_t /*module_outputs*/) {
  WeightDelta delta;
  delta.weight = target.weight;
  delta.of_table = target.of_table;
  delta.first_output = target.first_output;
  delta.num_outputs = target.num_outputs;
  delta.rank = product.rank;
  delta.scale = product.scale;
  delta.a = product.a;
  delta.b = target.of_table ? product.b : picked(product.b, target, product.rank);
  return delta;
}

// Magnitudes and biases.
Status AdapterReader::add_vectors(const ModuleTensors& tensors, const AdapterModule& module,
                                  const AdapterTarget& target, WeightDelta* delta) {
  const std::array size{module.num_outputs};
  if (tensors[Part::kMagnitude] != nullptr) {
    delta->magnitudes = picked(TRY(values(tensors, Part::kMagnitude, size)), target, 1);
  }
  std::span<const float> bias, of_b;
  if (tensors[Part::kBaseBias] != nullptr) {
    bias = picked(TRY(values(tensors, Part::kBaseBias, size)), target, 1);
    delta->replaced_bias = target.bias;
  }
  if (tensors[Part::kBBias] != nullptr) {
    of_b = picked(TRY(values(tensors, Part::kBBias, size)), target, 1);
  }
  if (bias.empty() && of_b.empty()) return {};
  const std::span<float> all = room(target.num_outputs);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = (bias.empty() ? 0.0f : bias[i]) + (of_b.empty() ? 0.0f : delta->scale * of_b[i]);
  }
  delta->bias = all;
  return {};
}

Status AdapterReader::read_linear(const std::string& name, const ModuleTensors& tensors,
                                  const AdapterModule& module) {
  for (const Part part : {Part::kTableA, Part::kTableB}) {
    if (tensors[part] != nullptr) return no_module(name, tensors);
  }
  const bool has_magnitude = tensors[Part::kMagnitude] != nullptr;
  if ((tensors[Part::kA] != nullptr && has_magnitude != config_.has_magnitudes) ||
      (has_magnitude && (tensors[Part::kA] == nullptr || tensors[Part::kBBias] != nullptr))) {
    return make_error(ErrorCode::kInvalidArgument, "module {} {} a magnitude, but use_dora is {}",
                      name, has_magnitude ? "has" : "lacks", config_.has_magnitudes);
  }
  const Product product = TRY(product_of(name, tensors, module));
  if (tensors[Part::kBBias] != nullptr && product.rank == 0) return no_module(name, tensors);
  if (product.rank > 0 || tensors[Part::kBaseBias] != nullptr) {
    for (const AdapterTarget& target : module.targets) {
      WeightDelta delta = delta_of(target, product, module.num_outputs);
      TRY(add_vectors(tensors, module, target, &delta));
      deltas_.push_back(delta);
    }
  }
  if (tensors[Part::kBaseWeight] == nullptr) return {};
  const AdapterTarget& only = module.targets.front();
  const bool is_head = name == "lm_head" || name.ends_with(".lm_head");
  if (!is_head || only.num_outputs != only.weight->num_outputs()) return no_module(name, tensors);
  return read_replacement(tensors, module);
}

// A whole weight. One that equals what the model has changes nothing: the back end leaves it out.
Status AdapterReader::read_replacement(const ModuleTensors& tensors, const AdapterModule& module) {
  const AdapterTarget& target = module.targets.front();
  WeightDelta delta;
  delta.weight = target.weight;
  delta.of_table = target.of_table;
  delta.num_outputs = module.num_outputs;
  delta.replacement =
      TRY(values(tensors, Part::kBaseWeight, std::array{module.num_outputs, module.num_inputs}));
  deltas_.push_back(delta);
  return target.of_table ? tie_head(delta) : Status();
}

// With a head that is the table, what is done to one is done to the other if the file says so.
Status AdapterReader::tie_head(const WeightDelta& table) {
  if (!tied_ || !config_.ties_embeddings) return {};
  WeightDelta head = table;
  head.of_table = false;
  if (head.rank > 0) {
    const int64_t outputs = head.weight->num_outputs(), inputs = head.weight->num_inputs();
    const std::span<float> a = room(head.rank * inputs), b = room(outputs * head.rank);
    for (int64_t j = 0; j < head.rank; ++j) {
      for (int64_t k = 0; k < inputs; ++k) {
        a[static_cast<size_t>(j * inputs + k)] = table.b[static_cast<size_t>(k * head.rank + j)];
      }
      for (int64_t n = 0; n < outputs; ++n) {
        b[static_cast<size_t>(n * head.rank + j)] = table.a[static_cast<size_t>(j * outputs + n)];
      }
    }
    head.a = a;
    head.b = b;
  }
  deltas_.push_back(head);
  return {};
}

Status AdapterReader::read_table(const std::string& name, const ModuleTensors& tensors,
                                 const AdapterModule& module) {
  for (const Part part : {Part::kA, Part::kB, Part::kBBias, Part::kMagnitude, Part::kBaseBias}) {
    if (tensors[part] != nullptr) return no_module(name, tensors);
  }
  const Product product = TRY(product_of(name, tensors, module));
  if (product.rank > 0) {
    deltas_.push_back(delta_of(module.targets.front(), product, module.num_outputs));
    TRY(tie_head(deltas_.back()));
  }
  if (tensors[Part::kBaseWeight] == nullptr) return {};
  return read_replacement(tensors, module);
}

// Experts in one tensor: A [experts * rank, inputs] expert by expert, B [outputs, rank * experts]
// with the experts innermost.
Status AdapterReader::read_stack(std::string_view name, const ModuleTensors& tensors) {
  const TensorView &a = *tensors[Part::kA], &b = *tensors[Part::kB];
  std::vector<const AdapterModule*> experts;
  if (a.rank == 2 && b.rank == 2) experts = targets_.experts(name, b.dim(0), a.dim(1));
  const auto num_experts = std::ssize(experts);
  if (experts.empty() || a.dim(0) % num_experts != 0) return no_module(std::string(name), tensors);
  for (const Part part : {Part::kBBias, Part::kMagnitude, Part::kBaseWeight, Part::kBaseBias}) {
    if (tensors[part] != nullptr) return no_module(std::string(name), tensors);
  }
  const int64_t rank = TRY(checked_rank(name, tensors, Part::kA, a.dim(0) / num_experts));
  const std::span<const float> all_a =
      TRY(values(tensors, Part::kA, std::array{rank * num_experts, a.dim(1)}));
  const std::span<const float> all_b =
      TRY(values(tensors, Part::kB, std::array{b.dim(0), rank * num_experts}));
  rank_ = std::max(rank_, rank);
  for (int64_t e = 0; e < num_experts; ++e) {
    const AdapterModule& module = *experts[static_cast<size_t>(e)];
    const std::span<float> own_b = room(module.num_outputs * rank);
    for (size_t i = 0; i < own_b.size(); ++i) {
      own_b[i] = all_b[i * static_cast<size_t>(num_experts) + static_cast<size_t>(e)];
    }
    const auto a_size = static_cast<size_t>(rank * module.num_inputs);
    const Product product{all_a.subspan(static_cast<size_t>(e) * a_size, a_size), own_b, rank,
                          TRY(config_.scale_of(name, rank))};
    deltas_.push_back(delta_of(module.targets.front(), product, module.num_outputs));
  }
  return {};
}

// A fused module and one of its parts, say.
Status AdapterReader::check_overlaps() const {
  std::map<std::pair<const PackedWeight*, int64_t>, int64_t> ends;  // of low-rank deltas, by begin
  for (const WeightDelta& delta : deltas_) {
    if (delta.of_table || !delta.replacement.empty()) continue;
    const auto [at, added] = ends.emplace(std::pair(delta.weight, delta.first_output),
                                          delta.first_output + delta.num_outputs);
    const auto next = std::next(at);
    const bool meets_next =
        next != ends.end() && next->first.first == delta.weight && next->first.second < at->second;
    const bool meets_last = at != ends.begin() && std::prev(at)->first.first == delta.weight &&
                            std::prev(at)->second > delta.first_output;
    if (added && !meets_next && !meets_last) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "two modules of the adapter change the same outputs of one weight");
  }
  return {};
}

Result<std::vector<WeightDelta>> AdapterReader::read() {
  TRY(sort_tensors());
  for (const auto& [name, tensors] : modules_) TRY(read_module(name, tensors));
  if (deltas_.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the file holds no tensors of an adapter");
  }
  TRY(check_overlaps());
  return std::move(deltas_);
}

std::string digest_of(const AdapterFiles& files) {
  std::string text;
  for (const FileDigest& digest : {sha256(files.config), sha256(files.weights)}) {
    for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<int>(byte));
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<const Adapter>> read_adapter(const AdapterFiles& files,
                                                    const ModelConfig& config,
                                                    const Weights& weights, Backend& backend) {
  const AdapterConfig own = TRY(read_adapter_config(files.config));
  const std::unique_ptr<Checkpoint> file = TRY(parse_safetensors(files.weights, files.name));
  AdapterReader reader(*file, own, config, weights);
  const std::vector<WeightDelta> deltas = TRY(reader.read());
  auto adapter = std::make_unique<Adapter>();
  adapter->packed = TRY(backend.pack_adapter(deltas));
  adapter->digest = digest_of(files);
  adapter->base_model = own.base_model;
  adapter->rank = reader.rank();
  return std::unique_ptr<const Adapter>(std::move(adapter));
}

}  // namespace headrace
