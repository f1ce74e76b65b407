// Names of modules against the weights that a model has packed. No weight is read here: all that
// counts are sizes.
#include "model/adapter_targets.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "model/config/roles.h"
#include "model/testing/complete_checkpoint.h"

namespace headrace {
namespace adapter_targets_test {

using testing::full_config;

class SizedWeight : public PackedWeight {
 public:
  SizedWeight(int64_t outputs, int64_t inputs, int64_t experts)
      : outputs_(outputs), inputs_(inputs) {
    for (int64_t e = 0; experts > 1 && e < experts; ++e) {
      experts_.push_back(std::make_unique<SizedWeight>(outputs, inputs, 1));
    }
  }
  int64_t num_experts() const override { return experts_.empty() ? 1 : std::ssize(experts_); }
  const PackedWeight& expert(int64_t index) const override {
    return experts_.empty() ? *this : *experts_[static_cast<size_t>(index)];
  }
  int64_t num_outputs() const override { return outputs_; }
  int64_t num_inputs() const override { return inputs_; }
  size_t num_bytes() const override { return 0; }
  std::string_view layout() const override { return "sizes"; }

 private:
  int64_t outputs_, inputs_;
  std::vector<std::unique_ptr<SizedWeight>> experts_;
};

// The weights that a configuration asks for.
Weights sized_weights(const ModelConfig& config, bool tied = false) {
  static const LayerConfig kNone;
  Weights weights;
  weights.layers.resize(config.layers.size());
  for (const RoleSlot& slot : role_slots(config)) {
    const RoleRow& row = *slot.row;
    if (row.form != RoleForm::kWeight || (tied && row.role == Role::kHead)) continue;
    const auto idx = static_cast<size_t>(slot.layer);
    const LayerConfig& layer = slot.layer == kNoLayer ? kNone : config.layers[idx];
    int64_t outputs = 0;
    for (const PartRow& part : row.used_parts()) outputs += part.outputs(config, layer);
    const int64_t experts = row.experts == nullptr ? 1 : row.experts(config, layer);
    RoleWeights& all = slot.layer == kNoLayer ? weights.network : weights.layers[idx];
    all[row.role].weight =
        std::make_unique<SizedWeight>(outputs, row.inputs(config, layer), experts);
  }
  return weights;
}

const AdapterModule& module_of(const AdapterTargets& targets, std::string_view name) {
  static const AdapterModule kNothing{0, 0, {AdapterTarget{}}};
  const AdapterModule* module = targets.find(name);
  EXPECT_NE(module, nullptr) << name;
  return module == nullptr ? kNothing : *module;
}

struct Placed {
  std::string_view name;
  int64_t num_outputs, num_inputs, first_output;
};

void expect_places(const AdapterTargets& targets, const PackedWeight& weight,
                   std::initializer_list<Placed> places) {
  for (const Placed& place : places) {
    const AdapterModule& module = module_of(targets, place.name);
    EXPECT_EQ(module.num_outputs, place.num_outputs) << place.name;
    EXPECT_EQ(module.num_inputs, place.num_inputs) << place.name;
    ASSERT_EQ(module.targets.size(), 1u) << place.name;
    const AdapterTarget& target = module.targets[0];
    EXPECT_EQ(target.weight, &weight) << place.name;
    EXPECT_EQ(target.first_output, place.first_output) << place.name;
    EXPECT_EQ(target.num_outputs, place.num_outputs) << place.name;
    EXPECT_TRUE(target.rows.empty()) << place.name;
    EXPECT_FALSE(target.of_table) << place.name;
  }
}

TEST(AdapterTargets, PartsOfAWeightAreItsRuns) {
  const ModelConfig config = full_config();
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  expect_places(targets, weights.layers[1].weight(Role::kQkv),
                {{"model.layers.1.self_attn.q_proj", 32, 32, 0},
                 {"model.layers.1.self_attn.k_proj", 16, 32, 32},
                 {"model.layers.1.self_attn.v_proj", 16, 32, 48},
                 {"model.layers.1.self_attn.qkv_proj", 64, 32, 0}});
  expect_places(targets, weights.layers[0].weight(Role::kGateUp),
                {{"model.layers.0.mlp.gate_proj", 48, 32, 0},
                 {"model.layers.0.mlp.up_proj", 48, 32, 48},
                 {"model.layers.0.mlp.gate_up_proj", 96, 32, 0}});
  expect_places(targets, weights.layers[0].weight(Role::kDown),
                {{"model.layers.0.mlp.down_proj", 32, 48, 0}});
}

// Every prefix under which a checkpoint of the model may come, as adapters are made for any of
// them.
TEST(AdapterTargets, NamesComeWithEveryPrefix) {
  const ModelConfig config = full_config();
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  for (const std::string_view prefix :
       {"model.", "model.language_model.", "language_model.model.", "backbone.", ""}) {
    const std::string name = std::string(prefix) + "layers.0.self_attn.o_proj";
    EXPECT_EQ(module_of(targets, name).targets[0].weight,
              &weights.layers[0].weight(Role::kAttentionOut))
        << name;
  }
  EXPECT_NE(targets.find("language_model.lm_head"), nullptr);
  EXPECT_EQ(targets.find("model.lm_head"), nullptr);
  EXPECT_EQ(targets.find("transformer.layers.0.self_attn.o_proj"), nullptr);
}

TEST(AdapterTargets, WhatIsNoLinearLayerIsNotFound) {
  const ModelConfig config = full_config();
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  for (const std::string_view name :
       {"", "model", "model.layers.0", "model.layers.0.self_attn",
        "model.layers.2.self_attn.q_proj", "model.layers.00.self_attn.q_proj",
        "model.layers.0.self_attn.q_norm", "model.layers.0.self_attn.sinks",
        "model.layers.0.input_layernorm", "model.norm", "model.layers.0.mlp.experts.0.up_proj",
        "model.layers.1.mlp.up_proj", "model.layers.1.mlp.experts.3.up_proj",
        "model.layers.1.mlp.experts.{}.up_proj", "model.layers.1.mlp.shared_expert_gate",
        "blk.0.attn_q"}) {
    EXPECT_EQ(targets.find(name), nullptr) << name;
  }
}

TEST(AdapterTargets, AnExpertIsAWeightOfItsOwn) {
  const ModelConfig config = full_config();
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  const PackedWeight& gate_up = weights.layers[1].weight(Role::kExpertGateUp);
  const PackedWeight& down = weights.layers[1].weight(Role::kExpertDown);
  for (int64_t e = 0; e < 3; ++e) {
    const std::string expert = "model.layers.1.mlp.experts." + std::to_string(e);
    expect_places(targets, gate_up.expert(e),
                  {{expert + ".gate_proj", 24, 32, 0}, {expert + ".up_proj", 24, 32, 24}});
    expect_places(targets, down.expert(e), {{expert + ".down_proj", 32, 24, 0}});
  }
}

// In one tensor per projection only its shape tells which of the two it is.
TEST(AdapterTargets, StacksOfExpertsAreToldByTheirShapes) {
  const ModelConfig config = full_config();
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  const std::string_view name = "model.layers.1.mlp.experts";
  const auto gate_up = targets.experts(name, 48, 32), down = targets.experts(name, 32, 24);
  ASSERT_EQ(gate_up.size(), 3u);
  ASSERT_EQ(down.size(), 3u);
  for (size_t e = 0; e < 3; ++e) {
    const auto idx = static_cast<int64_t>(e);
    EXPECT_EQ(gate_up[e]->targets[0].weight,
              &weights.layers[1].weight(Role::kExpertGateUp).expert(idx));
    EXPECT_EQ(down[e]->targets[0].weight, &weights.layers[1].weight(Role::kExpertDown).expert(idx));
  }
  EXPECT_TRUE(targets.experts(name, 24, 32).empty()) << "half of a gate and up";
  EXPECT_TRUE(targets.experts(name, 32, 48).empty());
  EXPECT_TRUE(targets.experts("model.layers.0.mlp.experts", 48, 32).empty()) << "a dense layer";
  EXPECT_TRUE(targets.experts("model.layers.1.mlp", 48, 32).empty());
}

// gpt-oss keeps gate and up of its stacks in turns; packed they are one after the other.
TEST(AdapterTargets, RowsOfInterleavedStacksAreInTurns) {
  ModelConfig config = full_config();
  config.interleaved_experts = true;
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  const auto stack = targets.experts("model.layers.1.mlp.experts", 48, 32);
  ASSERT_EQ(stack.size(), 3u);
  const AdapterTarget& gate_up = stack[2]->targets[0];
  EXPECT_EQ(gate_up.row(0), 0);
  EXPECT_EQ(gate_up.row(1), 2);
  EXPECT_EQ(gate_up.row(23), 46);
  EXPECT_EQ(gate_up.row(24), 1);
  EXPECT_EQ(gate_up.row(47), 47);
  const auto down = targets.experts("model.layers.1.mlp.experts", 32, 24);
  ASSERT_EQ(down.size(), 3u);
  EXPECT_TRUE(down[0]->targets[0].rows.empty());
}

// The projection of queries holds each head's query, then its gate.
TEST(AdapterTargets, QueriesAndGatesInTurnsAreTwoTargets) {
  ModelConfig config = full_config();
  config.layers[0].attention_gate = true;
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  const AdapterModule& module = module_of(targets, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(module.num_outputs, 64);
  EXPECT_EQ(module.num_inputs, 32);
  ASSERT_EQ(module.targets.size(), 2u);
  const AdapterTarget &query = module.targets[0], &gate = module.targets[1];
  EXPECT_EQ(query.first_output, 0);
  EXPECT_EQ(gate.first_output, 64) << "behind the keys and values";
  EXPECT_EQ(query.num_outputs, 32);
  EXPECT_EQ(gate.num_outputs, 32);
  std::vector<bool> taken(64);
  for (int64_t i = 0; i < 32; ++i) {
    const int64_t head = i / 8, row = i % 8;
    EXPECT_EQ(query.row(i), head * 16 + row);
    EXPECT_EQ(gate.row(i), head * 16 + 8 + row);
    taken[static_cast<size_t>(query.row(i))] = taken[static_cast<size_t>(gate.row(i))] = true;
  }
  EXPECT_EQ(std::accumulate(taken.begin(), taken.end(), 0), 64) << "each row of the module";
}

// GPT-NeoX publishes the query, key and value of each head together.
TEST(AdapterTargets, AFusedModuleIsInItsPublishedOrder) {
  ModelConfig config = full_config();
  config.family = "gpt_neox";
  config.layers.resize(1);
  config.layers[0].mlp = MlpKind::kPlain;
  const Weights weights = sized_weights(config);
  const AdapterTargets targets(config, weights);
  const AdapterModule& module = module_of(targets, "gpt_neox.layers.0.attention.query_key_value");
  ASSERT_EQ(module.targets.size(), 1u);
  const AdapterTarget& target = module.targets[0];
  EXPECT_EQ(module.num_outputs, 64);
  // Two key-value heads, with two queries each: q q k v, q q k v, eight rows each.
  EXPECT_EQ(target.row(0), 0);
  EXPECT_EQ(target.row(15), 15);
  EXPECT_EQ(target.row(16), 32) << "the second head's queries";
  EXPECT_EQ(target.row(32), 16) << "the first key";
  EXPECT_EQ(target.row(40), 48);
  EXPECT_EQ(target.row(48), 24) << "the first value";
  EXPECT_EQ(target.row(63), 63);
}

TEST(AdapterTargets, ATiedHeadIsTheTable) {
  const ModelConfig config = full_config();
  const Weights weights = sized_weights(config, true);
  const PackedWeight& table = weights.network.weight(Role::kEmbedding);
  const AdapterTargets targets(config, weights);
  const AdapterModule& embedding = module_of(targets, "model.embed_tokens");
  EXPECT_TRUE(embedding.targets[0].of_table);
  EXPECT_EQ(embedding.targets[0].weight, &table);
  const AdapterModule& head = module_of(targets, "lm_head");
  EXPECT_FALSE(head.targets[0].of_table);
  EXPECT_EQ(head.targets[0].weight, &table);
  EXPECT_EQ(head.num_outputs, 20);
  EXPECT_EQ(head.num_inputs, 32);
  // With a head of its own it is that one.
  const Weights apart = sized_weights(config);
  const AdapterTargets own(config, apart);
  EXPECT_EQ(module_of(own, "lm_head").targets[0].weight, &apart.network.weight(Role::kHead));
}

TEST(AdapterTargets, BiasesAreThoseOfTheOutputs) {
  const ModelConfig config = full_config();
  testing::CompleteCheckpoint checkpoint(CheckpointKind::kSafetensors, config);
  const auto backend = create_cpu_backend({.isa = "reference", .num_threads = 1}).value();
  const FoundWeights found = find_weights(checkpoint.get(), config).value();
  const Weights weights = load_weights(checkpoint.get(), found, *backend, {}, {}).value();
  const AdapterTargets targets(config, weights);
  const auto bias_of = [&](std::string_view name) {
    return module_of(targets, std::string("model.layers.0.") + std::string(name)).targets[0].bias;
  };
  const DevicePtr<const float> bias = weights.layers[0].vector(Role::kQkv);
  ASSERT_TRUE(static_cast<bool>(bias));
  EXPECT_EQ(bias_of("self_attn.q_proj"), bias);
  EXPECT_EQ(bias_of("self_attn.k_proj"), bias + 32);
  EXPECT_EQ(bias_of("self_attn.v_proj"), bias + 48);
  EXPECT_EQ(bias_of("self_attn.qkv_proj"), bias);
  EXPECT_EQ(bias_of("mlp.up_proj"), weights.layers[0].vector(Role::kGateUp) + 48);
  EXPECT_FALSE(static_cast<bool>(module_of(targets, "lm_head").targets[0].bias));
}

}  // namespace adapter_targets_test
}  // namespace headrace
