// A toy network with a mixture of experts, through the role tables from end to end: written as a
// checkpoint, found, planned, packed, kept and read again, and run; against float64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "checkpoint/testing/file_builders.h"
#include "golden/golden_data.h"
#include "model/model.h"
#include "model/whole_tables.h"
#include "verify/sequence_runner.h"

namespace headrace::golden {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<float>;

constexpr int64_t kHidden = 32, kVocab = 50, kDenseWidth = 40, kExpertWidth = 24;

// Float32 tensors of a safetensors folder, with random values.
class ToyFolder {
 public:
  Values& add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    Tensor& tensor = tensors_[name];
    tensor.shape = std::move(shape);
    tensor.values.resize(static_cast<size_t>(count));
    std::normal_distribution<float> normal(0, 0.25f);
    for (float& value : tensor.values) value = normal(random_);
    return tensor.values;
  }
  const Values& at(const std::string& name) const { return tensors_.at(name).values; }

  void write(const std::string& folder, const std::string& config) const {
    fs::create_directories(folder);
    std::string header = "{";
    size_t offset = 0;
    testing::ByteWriter data;
    for (const auto& [name, tensor] : tensors_) {
      const size_t end = offset + tensor.values.size() * sizeof(float);
      header += (offset == 0 ? "" : ",") +
                testing::safetensors_entry(
                    name, "F32", fmt::format("[{}]", fmt::join(tensor.shape, ",")), offset, end);
      for (const float value : tensor.values) data.put(value);
      offset = end;
    }
    testing::ByteWriter file;
    file.text(header + "}");
    file.raw({reinterpret_cast<const char*>(data.bytes().data()), data.size()});
    testing::write_file(folder + "/model.safetensors", file.bytes());
    testing::write_file(folder + "/config.json", std::as_bytes(std::span(config)));
  }

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    Values values;
  };
  std::map<std::string, Tensor> tensors_;
  std::mt19937 random_{17};
};

struct Toy {
  int num_experts = 4;
  int num_chosen = 2;
  bool normalise = true;
  float scale = 1.0f;
  bool attends = true;  // else attention adds nothing, and the network is easily written down
  void (*change)(ModelConfig* config) = nullptr;
};

ToyFolder tensors_of(const Toy& toy) {
  ToyFolder folder;
  folder.add("model.embed_tokens.weight", {kVocab, kHidden});
  folder.add("model.norm.weight", {kHidden});
  folder.add("lm_head.weight", {kVocab, kHidden});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      for (float& value : folder.add(prefix + norm + ".weight", {kHidden})) value += 1;
    }
    folder.add(prefix + "self_attn.q_proj.weight", {kHidden, kHidden});
    folder.add(prefix + "self_attn.k_proj.weight", {kHidden / 2, kHidden});
    folder.add(prefix + "self_attn.v_proj.weight", {kHidden / 2, kHidden});
    Values& out = folder.add(prefix + "self_attn.o_proj.weight", {kHidden, kHidden});
    if (!toy.attends) std::fill(out.begin(), out.end(), 0.0f);
  }
  folder.add("model.layers.0.mlp.gate_proj.weight", {kDenseWidth, kHidden});
  folder.add("model.layers.0.mlp.up_proj.weight", {kDenseWidth, kHidden});
  folder.add("model.layers.0.mlp.down_proj.weight", {kHidden, kDenseWidth});
  folder.add("model.layers.1.mlp.gate.weight", {toy.num_experts, kHidden});
  for (int e = 0; e < toy.num_experts; ++e) {
    const std::string expert = fmt::format("model.layers.1.mlp.experts.{}.", e);
    folder.add(expert + "gate_proj.weight", {kExpertWidth, kHidden});
    folder.add(expert + "up_proj.weight", {kExpertWidth, kHidden});
    folder.add(expert + "down_proj.weight", {kHidden, kExpertWidth});
  }
  return folder;
}

std::string config_text() {
  return fmt::format(
      R"({{"model_type": "llama", "hidden_size": {}, "intermediate_size": {}, "vocab_size": {},
           "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
           "rms_norm_eps": 1e-5}})",
      kHidden, kDenseWidth, kVocab);
}

// No family of the table has experts: the second layer is given them.
ModelConfig config_of(const Checkpoint& checkpoint, const Toy& toy) {
  ModelConfig config = Model::read_config(checkpoint).value();
  LayerConfig& layer = config.layers.at(1);
  layer.mlp = MlpKind::kExperts;
  layer.intermediate_size = 0;
  layer.experts.num_experts = toy.num_experts;
  layer.experts.num_experts_per_token = toy.num_chosen;
  layer.experts.intermediate_size = kExpertWidth;
  layer.experts.normalise = toy.normalise;
  layer.experts.scale = toy.scale;
  if (toy.change != nullptr) toy.change(&config);
  return config;
}

std::string folder_for(const std::string& name) {
  const std::string folder = temporary_folder("mixture") + "/" + name;
  fs::remove_all(folder);
  return folder;
}

// ---- Float64 ------------------------------------------------------------------------------------

using Row = std::vector<double>;

Row times(const Values& weight, const Row& x) {
  Row out(weight.size() / x.size());
  for (size_t n = 0; n < out.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) out[n] += double{weight[n * x.size() + k]} * x[k];
  }
  return out;
}

Row normed(const Values& weight, const Row& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  Row out(x);
  for (size_t i = 0; i < x.size(); ++i) out[i] *= weight[i] / root;
  return out;
}

Row gated(const ToyFolder& folder, const std::string& prefix, const Row& x) {
  const Row gate = times(folder.at(prefix + "gate_proj.weight"), x);
  Row inner = times(folder.at(prefix + "up_proj.weight"), x);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] *= gate[i] / (1 + std::exp(-gate[i]));
  return times(folder.at(prefix + "down_proj.weight"), inner);
}

Row mixture(const ToyFolder& folder, const Toy& toy, const Row& x) {
  Row scores = times(folder.at("model.layers.1.mlp.gate.weight"), x);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score);
  std::vector<size_t> order(scores.size());
  for (size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(toy.num_chosen));
  double chosen = 0;
  for (const size_t e : order) chosen += scores[e];
  Row out(x.size());
  for (const size_t e : order) {
    const double weight = scores[e] / (toy.normalise ? chosen : sum) * double{toy.scale};
    const Row part = gated(folder, fmt::format("model.layers.1.mlp.experts.{}.", e), x);
    for (size_t i = 0; i < out.size(); ++i) out[i] += weight * part[i];
  }
  return out;
}

// Of a network whose attention adds nothing: each token alone.
Row exact_logits(const ToyFolder& folder, const Toy& toy, int32_t id) {
  Row x(kHidden);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = folder.at("model.embed_tokens.weight")[static_cast<size_t>(id) * x.size() + i];
  }
  for (const int layer : {0, 1}) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const Row n = normed(folder.at(prefix + "post_attention_layernorm.weight"), x);
    const Row added = layer == 0 ? gated(folder, prefix + "mlp.", n) : mixture(folder, toy, n);
    for (size_t i = 0; i < x.size(); ++i) x[i] += added[i];
  }
  return times(folder.at("lm_head.weight"), normed(folder.at("model.norm.weight"), x));
}

// ---- Running ------------------------------------------------------------------------------------

struct Loaded {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  MemoryPlan plan;
  size_t packed = 0;  // bytes that were packed, not read
};

Loaded load(const std::string& folder, const Toy& toy, const std::string& isa = "reference",
            int num_threads = 2, const WeightCacheOptions& cache = {}) {
  Loaded loaded;
  loaded.backend = create_cpu_backend({.isa = isa, .num_threads = num_threads}).value();
  const auto checkpoint = Checkpoint::open(folder).value();
  const ModelConfig config = config_of(*checkpoint, toy);
  ModelOptions options{.max_batch_tokens = 64, .max_logit_rows = 64};
  options.weight_cache = cache;
  loaded.plan = Model::memory_plan(*checkpoint, config, *loaded.backend, options).value();
  auto model = Model::load(*checkpoint, config, *loaded.backend, options,
                           [&](size_t done, size_t) { loaded.packed = done; });
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  loaded.model = std::move(model).value();
  return loaded;
}

Values run(const Loaded& loaded, std::span<const int32_t> ids, int chunk = 0) {
  auto runner = SequenceRunner::create(*loaded.model, *loaded.backend, 64, chunk).value();
  Values logits;
  runner.append(ids, 0, [&](int64_t, std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  });
  return logits;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int32_t> prompt(int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 7 + i * i) % kVocab));
  return ids;
}

TEST(Mixture, FollowsFloat64) {
  const std::vector<int32_t> ids = prompt(12);
  for (const Toy& toy :
       {Toy{.attends = false}, Toy{.num_experts = 2, .attends = false},
        Toy{.num_experts = 8, .num_chosen = 3, .normalise = false, .scale = 2.5f, .attends = false},
        Toy{.num_chosen = 1, .attends = false},
        Toy{.num_chosen = 4, .normalise = false, .attends = false}}) {
    SCOPED_TRACE(fmt::format("{} of {} experts", toy.num_chosen, toy.num_experts));
    const ToyFolder tensors = tensors_of(toy);
    const std::string folder = folder_for("exact");
    tensors.write(folder, config_text());
    for (const std::string isa : {"reference", "auto"}) {
      const Loaded loaded = load(folder, toy, isa);
      const Values found = run(loaded, ids);
      ASSERT_EQ(found.size(), ids.size() * kVocab);
      for (size_t i = 0; i < ids.size(); ++i) {
        const Row exact = exact_logits(tensors, toy, ids[i]);
        double most = 0;
        for (const double value : exact) most = std::max(most, std::abs(value));
        for (size_t v = 0; v < exact.size(); ++v) {
          ASSERT_NEAR(found[i * kVocab + v], exact[v], 2e-5 * most) << isa << ", token " << i;
        }
      }
    }
  }
}

TEST(Mixture, IsTheSameInChunksAndOnAnyTeam) {
  const Toy toy;
  const std::string folder = folder_for("bits");
  tensors_of(toy).write(folder, config_text());
  const std::vector<int32_t> ids = prompt(41);
  for (const std::string isa : {"reference", "auto"}) {
    const Values whole = run(load(folder, toy, isa, 1), ids);
    for (const int num_threads : {1, 2, 5}) {
      const Loaded loaded = load(folder, toy, isa, num_threads);
      for (const int chunk : {1, 3, 16, 40}) {
        EXPECT_TRUE(same_bits(run(loaded, ids, chunk), whole))
            << isa << ", " << num_threads << " threads, chunks of " << chunk;
      }
    }
  }
}

// Sequences in one step, at other rows and beside others, give what each gives alone.
TEST(Mixture, IsTheSameAloneAndInABatch) {
  const Toy toy{.num_experts = 3};
  const std::string folder = folder_for("batch");
  tensors_of(toy).write(folder, config_text());
  const Loaded loaded = load(folder, toy);
  const std::vector<int32_t> first = prompt(7), second = prompt(21), third = prompt(1);
  const CacheLayout layout = plan_cache(loaded.model->cache_groups(), *loaded.backend);
  std::vector<int32_t> ids, rows;
  std::vector<WholeTables> tables;
  for (const int32_t block : {0, 2, 4}) {
    tables.emplace_back(std::vector<int32_t>{block, block + 1}, layout.num_columns, 6);
  }
  std::vector<Span> spans;
  Values alone;
  for (const auto& sequence : {second, third, first}) {
    const Values logits = run(loaded, sequence);
    alone.insert(alone.end(), logits.begin(), logits.end());
    spans.push_back({static_cast<int32_t>(ids.size()), static_cast<int32_t>(sequence.size()), 0,
                     tables[spans.size()].data()});
    for (const int32_t id : sequence) {
      rows.push_back(static_cast<int32_t>(ids.size()));
      ids.push_back(id);
    }
  }
  auto store = KvStore::create(*loaded.backend, layout, 6 * layout.num_columns).value();
  DeviceMemory logits =
      loaded.backend->allocate(alone.size() * sizeof(float), MemoryUse::kResults).value();
  loaded.model->forward(Batch{ids, spans, rows}, store, logits.as<float>());
  const auto found = loaded.backend->read_view(logits.as<float>(), alone.size());
  EXPECT_TRUE(same_bits(Values(found.begin(), found.end()), alone));
}

// Every token is counted at each of its experts, in the layer that has some.
TEST(Mixture, RowsOfExpertsAreCounted) {
  const Toy toy;
  const std::string folder = folder_for("counted");
  tensors_of(toy).write(folder, config_text());
  const Loaded loaded = load(folder, toy);
  const auto counted = [&] {
    const auto rows = loaded.model->expert_rows();
    return std::vector<uint64_t>(rows.begin(), rows.end());
  };
  EXPECT_EQ(counted(), std::vector<uint64_t>(static_cast<size_t>(toy.num_experts)));
  run(loaded, prompt(30), 7);
  const std::vector<uint64_t> first = counted();
  EXPECT_EQ(std::accumulate(first.begin(), first.end(), uint64_t{0}),
            30 * static_cast<uint64_t>(toy.num_chosen));
  run(loaded, prompt(30));
  for (size_t e = 0; e < first.size(); ++e) EXPECT_EQ(counted()[e], 2 * first[e]);
}

TEST(Mixture, ThePlanIsWhatIsLoaded) {
  const Toy toy;
  const std::string folder = folder_for("plan");
  tensors_of(toy).write(folder, config_text());
  const Loaded loaded = load(folder, toy);
  EXPECT_EQ(loaded.packed, loaded.plan.weights);
  // Each expert's three weights are there.
  EXPECT_GT(loaded.plan.weights, 4 * 3 * kHidden * kExpertWidth * sizeof(float));
  // The inputs and results of the chosen experts of each of 64 rows, beside the residual stream.
  EXPECT_GT(loaded.plan.workspace, 64 * (2 * 2 + 1) * kHidden * sizeof(float));
}

TEST(Mixture, IsKeptAndReadAgain) {
  const Toy toy;
  const std::string folder = folder_for("kept"), cache_folder = folder_for("kept-cache");
  tensors_of(toy).write(folder, config_text());
  const WeightCacheOptions cache{cache_folder, uint64_t{1} << 30, false};
  const std::vector<int32_t> ids = prompt(9);
  const Values fresh = run(load(folder, toy), ids);
  const Loaded packed = load(folder, toy, "reference", 2, cache);
  EXPECT_EQ(packed.packed, packed.plan.weights);
  EXPECT_TRUE(same_bits(run(packed, ids), fresh));
  const Loaded read = load(folder, toy, "reference", 3, cache);
  EXPECT_EQ(read.packed, 0u);
  EXPECT_TRUE(same_bits(run(read, ids), fresh));
  // The same files with other experts are another network.
  const Toy fewer{.num_experts = 3};
  ToyFolder tensors = tensors_of(toy);
  tensors.add("model.layers.1.mlp.gate.weight", {3, kHidden});
  tensors.write(folder, config_text());
  EXPECT_GT(load(folder, fewer, "reference", 2, cache).packed, 0u);
}

TEST(Mixture, WhatIsWrongIsSaid) {
  const Toy toy;
  const std::string folder = folder_for("wrong");
  ToyFolder tensors = tensors_of(toy);
  tensors.add("model.layers.1.mlp.gate.weight", {5, kHidden});
  tensors.write(folder, config_text());
  const auto checkpoint = Checkpoint::open(folder).value();
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  ModelConfig config = config_of(*checkpoint, toy);
  const auto loaded = Model::load(*checkpoint, config, *backend, {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message,
            "weight model.layers.1.mlp.gate is [5, 32], but [4, 32] is needed");
  config.layers[0].experts.num_experts = 4;  // of a dense layer
  const auto plan = Model::memory_plan(*checkpoint, config, *backend, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

// ---- Other values of a layer --------------------------------------------------------------------

// What a folder of these tensors gives for a prompt, by the network that toy.change makes of it.
Values logits_of(const ToyFolder& tensors, const Toy& toy, const std::string& isa) {
  const std::string folder = folder_for("values");
  tensors.write(folder, config_text());
  return run(load(folder, toy, isa), prompt(20));
}

double largest_difference(const Values& a, const Values& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

// With one expert the router has no say: its weight is 1.
TEST(LayerValues, AMixtureOfOneIsTheDenseLayer) {
  const Toy one{.num_experts = 1, .num_chosen = 1};
  const Toy dense{.num_experts = 1, .num_chosen = 1, .change = [](ModelConfig* config) {
                    LayerConfig& layer = config->layers[1];
                    layer.mlp = MlpKind::kDense;
                    layer.intermediate_size = layer.experts.intermediate_size;
                    layer.experts.num_experts = layer.experts.num_experts_per_token = 0;
                    layer.experts.intermediate_size = 0;
                    layer.experts.normalise = false;
                  }};
  ToyFolder tensors = tensors_of(one);
  for (const std::string part : {"gate_proj", "up_proj", "down_proj"}) {
    const Values values = tensors.at("model.layers.1.mlp.experts.0." + part + ".weight");
    const bool down = part == "down_proj";
    tensors.add("model.layers.1.mlp." + part + ".weight",
                {down ? kHidden : kExpertWidth, down ? kExpertWidth : kHidden}) = values;
  }
  for (const std::string isa : {"reference", "auto"}) {
    EXPECT_TRUE(same_bits(logits_of(tensors, one, isa), logits_of(tensors, dense, isa))) << isa;
  }
}

// Doubled scores of one layer are those of doubled queries, to the bit.
TEST(LayerValues, AttentionScaleIsTheLayersOwn) {
  const Toy doubled{.change = [](ModelConfig* config) { config->layers[1].attention_scale *= 2; }};
  const Toy plain;
  ToyFolder tensors = tensors_of(plain);
  ToyFolder queries = tensors_of(plain);
  Values twice = queries.at("model.layers.1.self_attn.q_proj.weight");
  for (float& value : twice) value *= 2;
  queries.add("model.layers.1.self_attn.q_proj.weight", {kHidden, kHidden}) = twice;
  for (const std::string isa : {"reference", "auto"}) {
    const Values found = logits_of(tensors, doubled, isa);
    EXPECT_TRUE(same_bits(found, logits_of(queries, plain, isa))) << isa;
    EXPECT_FALSE(same_bits(found, logits_of(tensors, plain, isa))) << isa;
  }
}

// A sink takes its share of the softmax: a large one takes all, a very small one nothing.
TEST(LayerValues, SinksTakeTheirShareOfAttention) {
  const Toy sinks{.change = [](ModelConfig* config) {
    for (LayerConfig& layer : config->layers) layer.attention_sinks = true;
  }};
  const auto with_sinks = [&](float value) {
    ToyFolder tensors = tensors_of(sinks);
    for (const int layer : {0, 1}) {
      Values& of_layer = tensors.add(fmt::format("model.layers.{}.self_attn.sinks", layer), {2});
      std::fill(of_layer.begin(), of_layer.end(), value);
    }
    return tensors;
  };
  const Toy plain, still{.attends = false};
  for (const std::string isa : {"reference", "auto"}) {
    const Values attended = logits_of(tensors_of(plain), plain, isa);
    const Values ignored = logits_of(tensors_of(still), still, isa);
    EXPECT_LT(largest_difference(logits_of(with_sinks(-1e30f), sinks, isa), attended), 1e-5);
    EXPECT_LT(largest_difference(logits_of(with_sinks(80), sinks, isa), ignored), 1e-5);
    const Values between = logits_of(with_sinks(0), sinks, isa);
    EXPECT_GT(largest_difference(between, attended), 1e-3);
    EXPECT_GT(largest_difference(between, ignored), 1e-3);
  }
}

// One layer norms its queries and keys and has the weights for it, the other has neither.
TEST(LayerValues, QkNormIsTheLayersOwn) {
  const Toy normed_first{
      .change = [](ModelConfig* config) { config->layers[0].qk_norm = QkNorm::kPerHead; }};
  ToyFolder tensors = tensors_of(normed_first);
  for (const char* name : {"q_norm", "k_norm"}) {
    tensors.add(fmt::format("model.layers.0.self_attn.{}.weight", name), {kHidden / 2});
  }
  const Toy plain;
  EXPECT_GT(largest_difference(logits_of(tensors, normed_first, "reference"),
                               logits_of(tensors_of(plain), plain, "reference")),
            1e-3);
}

TEST(LayerValues, SoftcapIsTheLayersOwn) {
  const Toy plain;
  const Toy capped{
      .change = [](ModelConfig* config) { config->layers[0].attention_softcap = 0.05f; }};
  const Toy far{.change = [](ModelConfig* config) { config->layers[1].attention_softcap = 1e4f; }};
  const ToyFolder tensors = tensors_of(plain);
  const Values expected = logits_of(tensors, plain, "reference");
  EXPECT_GT(largest_difference(logits_of(tensors, capped, "reference"), expected), 1e-3);
  EXPECT_LT(largest_difference(logits_of(tensors, far, "reference"), expected), 1e-4);
}

}  // namespace
}  // namespace headrace::golden
