#include "model/config/roles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/config/check_config.h"

namespace headrace {
namespace roles_test {

// Two layers of a Llama: the first dense, the second with experts.
ModelConfig small_config() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 100;
  config.hidden_size = 32;
  config.max_position_embeddings = 128;
  LayerConfig layer;
  layer.num_attention_heads = 4;
  layer.num_key_value_heads = 2;
  layer.head_dim = 8;
  layer.intermediate_size = 48;
  config.layers.push_back(layer);
  layer.intermediate_size = 0;
  layer.mlp = MlpKind::kExperts;
  layer.experts.num_experts = 6;
  layer.experts.num_experts_per_token = 2;
  layer.experts.intermediate_size = 24;
  config.layers.push_back(layer);
  return config;
}

std::string names_of(const std::vector<RoleSlot>& slots) {
  std::string names;
  for (const RoleSlot& slot : slots) names += fmt::format("{} {}\n", slot.layer, slot.row->name);
  return names;
}

TEST(Roles, EveryRoleHasOneRow) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kNumRoles; ++i) {
    const RoleRow& row = role_row(static_cast<Role>(i));
    EXPECT_EQ(static_cast<size_t>(row.role), i);
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " twice";
    EXPECT_FALSE(row.used_parts().empty()) << row.name;
    const bool has_parts = row.form == RoleForm::kWeight || row.form == RoleForm::kTaps;
    EXPECT_EQ(row.inputs != nullptr, has_parts) << row.name;
    EXPECT_TRUE(has_parts || row.used_parts().size() == 1) << row.name;
    EXPECT_TRUE(row.pack != WeightRole::kGateUp || row.used_parts().size() == 2) << row.name;
  }
}

// In both file formats, unless the family's block form names it.
TEST(Roles, EveryPartHasANameInEachFormat) {
  for (size_t i = 0; i < kNumRoles; ++i) {
    const RoleRow& row = role_row(static_cast<Role>(i));
    for (const PartRow& part : row.used_parts()) {
      for (const CheckpointKind kind : {CheckpointKind::kSafetensors, CheckpointKind::kGguf}) {
        const bool elsewhere = !row.shared.names.in(kind).empty();  // rows of a tensor of all heads
        EXPECT_TRUE(part.names.in(kind).empty() == (row.norm_slot >= 0) || elsewhere) << row.name;
      }
    }
  }
}

TEST(Roles, TablesOfKindsAreInTheOrderOfTheKinds) {
  EXPECT_EQ(mixer_row(MixerKind::kAttention).name, "attention");
  EXPECT_EQ(mlp_row(MlpKind::kDense).name, "dense");
  EXPECT_EQ(mlp_row(MlpKind::kExperts).name, "experts");
  EXPECT_EQ(mlp_row(MlpKind::kDenseAndExperts).name, "dense and experts");
}

// What a layer leaves to another one it has no weights for.
TEST(Roles, PartsOfALayerWithoutKeysOrValues) {
  ModelConfig config = small_config();
  LayerConfig& layer = config.layers[0];
  layer.qk_norm = QkNorm::kPerHead;
  const std::span<const PartRow> parts = role_row(Role::kQkv).used_parts();
  const auto rows = [&](size_t part) { return parts[part].outputs(config, layer); };
  const int64_t kv_rows = int64_t{layer.num_key_value_heads} * layer.head_dim;
  EXPECT_EQ(rows(1), kv_rows);
  EXPECT_EQ(rows(2), kv_rows);
  layer.values_are_keys = true;
  EXPECT_EQ(rows(1), kv_rows);
  EXPECT_EQ(rows(2), 0);
  EXPECT_NE(names_of(role_slots(config)).find("0 key norm"), std::string::npos);
  layer.kv_source_layer = 0;
  EXPECT_EQ(rows(1), 0);
  EXPECT_EQ(rows(2), 0);
  EXPECT_EQ(names_of(role_slots(config)).find("0 key norm"), std::string::npos);
  EXPECT_NE(names_of(role_slots(config)).find("0 query norm"), std::string::npos);
}

TEST(Roles, InputsOfLayersAreWeightsOfTheNetworkAndOfEachLayer) {
  ModelConfig config = small_config();
  config.hidden_size_per_layer_input = 8;
  config.layer_scalar = true;
  const std::string names = names_of(role_slots(config));
  for (const char* name : {"-1 embedding of each layer\n", "-1 projection to each layer\n",
                           "-1 norm of each layer's input\n", "0 gate of the layer's input\n",
                           "1 projection of the layer's input\n",
                           "0 norm after the layer's input\n", "1 factor of the layer\n"}) {
    EXPECT_NE(names.find(name), std::string::npos) << name << names;
  }
  EXPECT_EQ(role_row(Role::kPerLayerEmbedding).inputs(config, config.layers[0]), 16);
}

TEST(Roles, SlotsAreInTheOrderOfPacking) {
  EXPECT_EQ(names_of(role_slots(small_config())),
            "-1 embedding\n"
            "-1 final norm\n"
            "0 query, key and value\n"
            "0 attention output\n"
            "0 gate and up\n"
            "0 down\n"
            "0 attention norm\n"
            "0 MLP norm\n"
            "1 query, key and value\n"
            "1 attention output\n"
            "1 router\n"
            "1 gate and up of the experts\n"
            "1 down of the experts\n"
            "1 attention norm\n"
            "1 MLP norm\n"
            "-1 head\n");
}

// What a layer has follows from the configuration and the family's block form.
TEST(Roles, SlotsFollowTheConfiguration) {
  ModelConfig config = small_config();
  config.layers.resize(1);
  const auto slots_with = [&config](Role role) {
    int count = 0;
    for (const RoleSlot& slot : role_slots(config)) count += slot.row->role == role ? 1 : 0;
    return count;
  };
  EXPECT_EQ(slots_with(Role::kQNorm), 0);
  config.layers[0].qk_norm = QkNorm::kPerHead;
  EXPECT_EQ(slots_with(Role::kQNorm), 1);
  EXPECT_EQ(slots_with(Role::kKNorm), 1);
  EXPECT_EQ(slots_with(Role::kSinks), 0);
  config.layers[0].attention_sinks = true;
  EXPECT_EQ(slots_with(Role::kSinks), 1);
  EXPECT_EQ(slots_with(Role::kHead), 1);
  config.tie_word_embeddings = true;
  EXPECT_EQ(slots_with(Role::kHead), 0);
  struct Case {
    const char* family;
    int attention, post_attention, mlp, post_mlp;
  };
  for (const Case& c : {Case{"llama", 1, 0, 1, 0}, Case{"olmo2", 0, 1, 0, 1},
                        Case{"gemma2", 1, 1, 1, 1}, Case{"cohere2", 1, 0, 0, 0}}) {
    config.family = c.family;
    EXPECT_EQ(slots_with(Role::kAttentionNorm), c.attention) << c.family;
    EXPECT_EQ(slots_with(Role::kPostAttentionNorm), c.post_attention) << c.family;
    EXPECT_EQ(slots_with(Role::kMlpNorm), c.mlp) << c.family;
    EXPECT_EQ(slots_with(Role::kPostMlpNorm), c.post_mlp) << c.family;
  }
}

TEST(Roles, NormsAreNamedAfterTheBlockForm) {
  ModelConfig config = small_config();
  const auto name_of = [&config](Role role, CheckpointKind kind) {
    const RoleRow& row = role_row(role);
    return role_names(config, row, row.parts[0]).in(kind).front();
  };
  EXPECT_EQ(name_of(Role::kMlpNorm, CheckpointKind::kSafetensors), "post_attention_layernorm");
  EXPECT_EQ(name_of(Role::kMlpNorm, CheckpointKind::kGguf), "ffn_norm");
  config.family = "glm4";
  EXPECT_EQ(name_of(Role::kPostAttentionNorm, CheckpointKind::kSafetensors),
            "post_self_attn_layernorm");
  config.family = "seed_oss";
  EXPECT_EQ(name_of(Role::kMlpNorm, CheckpointKind::kGguf), "post_attention_norm");
}

TEST(Roles, ShapesAreThoseOfTheLayer) {
  ModelConfig config = small_config();
  config.layers[0].head_dim = 16;
  config.layers[1].qk_norm = QkNorm::kWhole;
  const auto outputs = [&config](size_t layer, Role role, size_t part) {
    return role_row(role).parts[part].outputs(config, config.layers[layer]);
  };
  EXPECT_EQ(outputs(0, Role::kQkv, 0), 64);
  EXPECT_EQ(outputs(0, Role::kQkv, 1), 32);
  EXPECT_EQ(outputs(1, Role::kQkv, 2), 16);
  EXPECT_EQ(outputs(0, Role::kQNorm, 0), 16);  // per head
  EXPECT_EQ(outputs(1, Role::kQNorm, 0), 32);  // the whole projection
  EXPECT_EQ(outputs(1, Role::kKNorm, 0), 16);
  EXPECT_EQ(outputs(0, Role::kSinks, 0), 4);
  EXPECT_EQ(outputs(1, Role::kRouter, 0), 6);
  EXPECT_EQ(outputs(1, Role::kExpertGateUp, 1), 24);
  const RoleRow& down = role_row(Role::kExpertDown);
  EXPECT_EQ(down.inputs(config, config.layers[1]), 24);
  EXPECT_EQ(down.experts(config, config.layers[1]), 6);
}

TEST(Roles, TheRoomOfAMixtureHoldsItsArraysApart) {
  ModelConfig config = small_config();
  config.layers[1].experts.shared_intermediate_size = 40;
  const LayerConfig& layer = config.layers[1];
  for (const int64_t rows : {0, 1, 3, 64}) {
    const ExpertRoom room(config, layer, rows);
    struct Array {
      int64_t start, count;
    };
    const int64_t slots = rows * 2;
    const Array arrays[] = {{room.logits, rows * 6},
                            {room.experts, slots},
                            {room.weights, slots},
                            {room.slots, slots},
                            {room.rows, slots},
                            {room.first_slot, 7},
                            {room.slot_inputs, slots * 256},
                            {room.slot_activations, slots * 24},
                            {room.slot_outputs, slots * 256},
                            {room.mixed, rows * 32},
                            {room.shared, rows * 32},
                            {room.shared_activations, rows * 40},
                            {room.shared_factors, rows}};
    int64_t end = 0;
    for (const Array& array : arrays) {
      EXPECT_GE(array.start, end);
      EXPECT_EQ(array.start % 16, 0);
      end = array.start + array.count;
    }
    EXPECT_LE(end, room.num_floats);
    EXPECT_EQ(mlp_row(MlpKind::kExperts).room(config, layer, rows), room.num_floats);
  }
  EXPECT_EQ(mlp_row(MlpKind::kDense).room(config, config.layers[0], 5), 5 * 48);
}

// ---- Values of a layer --------------------------------------------------------------------------

Error error_of(const ModelConfig& config) {
  const Status status = check_config(config);
  EXPECT_FALSE(status.ok());
  return status.ok() ? Error{ErrorCode::kInternal, "accepted", {}, {}} : status.error();
}

TEST(CheckConfig, BothKindsOfLayersAreAccepted) { EXPECT_TRUE(check_config(small_config()).ok()); }

// A layer that reads the keys and values of another one finds what it needs there.
TEST(CheckConfig, TheSourceOfKeysAndValuesFits) {
  ModelConfig good = small_config();
  good.layers.push_back(good.layers[0]);
  good.layers[2].kv_source_layer = 0;
  EXPECT_TRUE(check_config(good).ok());
  constexpr void (*kChanges[])(ModelConfig*) = {
      [](ModelConfig* config) { config->layers[2].kv_source_layer = 2; },
      [](ModelConfig* config) { config->layers[2].kv_source_layer = 7; },
      [](ModelConfig* config) { config->layers[1].kv_source_layer = 2; },
      [](ModelConfig* config) { config->layers[2].head_dim *= 2; },
      [](ModelConfig* config) { config->layers[2].sliding_window = 8; },
      [](ModelConfig* config) { config->layers[0].num_key_value_heads = 1; },
      [](ModelConfig* config) {
        config->layers[1].kv_source_layer = 0;
        config->layers[2].kv_source_layer = 1;
      },
  };
  for (const auto& change : kChanges) {
    ModelConfig config = good;
    change(&config);
    const Error error = error_of(config);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(error.message.find("is to read the keys and values of layer"), std::string::npos)
        << error.message;
  }
}

// Each token has a row of its own in the table of the layers' inputs.
TEST(CheckConfig, TheTableOfInputsHasTheWholeVocabulary) {
  ModelConfig config = small_config();
  config.hidden_size_per_layer_input = 8;
  config.vocab_size_per_layer_input = config.vocab_size;
  EXPECT_TRUE(check_config(config).ok());
  config.vocab_size_per_layer_input = config.vocab_size - 1;
  EXPECT_NE(error_of(config).message.find("vocab_size_per_layer_input"), std::string::npos);
  config.vocab_size_per_layer_input = config.vocab_size;
  config.hidden_size_per_layer_input = -1;
  EXPECT_NE(error_of(config).message.find("hidden_size_per_layer_input"), std::string::npos);
}

// A value that no function of the layer's kinds reads would be passed over in silence.
TEST(CheckConfig, ValuesThatNoFunctionHeedsAreRefused) {
  struct Case {
    size_t layer;
    void (*set)(LayerConfig*);
    const char* message;
  };
  constexpr Case kCases[] = {
      {0, [](LayerConfig* layer) { layer->experts.num_experts = 4; },
       "layer 0 has num_experts 4, but neither its mixer (attention) nor its MLP (dense) heeds "
       "that"},
      {0, [](LayerConfig* layer) { layer->experts.num_experts_per_token = 2; },
       "num_experts_per_token 2"},
      {0, [](LayerConfig* layer) { layer->experts.intermediate_size = 64; }, "expert width 64"},
      {0, [](LayerConfig* layer) { layer->experts.normalise = true; }, "expert normalise 1"},
      {0, [](LayerConfig* layer) { layer->experts.scale = 2.5f; }, "expert scale 2.5"},
      {1, [](LayerConfig* layer) { layer->intermediate_size = 48; },
       "layer 1 has intermediate_size 48, but neither its mixer (attention) nor its MLP (experts) "
       "heeds that"},
      {0, [](LayerConfig* layer) { layer->experts.shared_intermediate_size = 16; },
       "shared expert width 16"},
      {0, [](LayerConfig* layer) { layer->experts.swiglu_limit = 7; }, "swiglu_limit 7"},
  };
  for (const Case& c : kCases) {
    ModelConfig config = small_config();
    c.set(&config.layers[c.layer]);
    const Error error = error_of(config);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << c.message;
    EXPECT_NE(error.message.find(c.message), std::string::npos) << error.message;
  }
}

TEST(CheckConfig, NumbersOutOfRangeAreNamed) {
  struct Case {
    size_t layer;
    void (*set)(LayerConfig*);
    const char* message;
  };
  constexpr Case kCases[] = {
      {0, [](LayerConfig* layer) { layer->num_attention_heads = 0; },
       "the model's num_attention_heads is 0, but must be between 1 and 4096"},
      {0, [](LayerConfig* layer) { layer->num_key_value_heads = 3; },
       "num_attention_heads is 4, but must be a multiple of num_key_value_heads, which is 3"},
      {0, [](LayerConfig* layer) { layer->head_dim = 4096; }, "the model's head_dim is 4096"},
      {1, [](LayerConfig* layer) { layer->sliding_window = -1; },
       "the model's sliding_window is -1"},
      {1, [](LayerConfig* layer) { layer->attention_scale = 1e9f; },
       "the model's attention scale is 1000000000"},
      {1, [](LayerConfig* layer) { layer->attention_softcap = -1; },
       "the model's attention softcap is -1"},
      {0, [](LayerConfig* layer) { layer->intermediate_size = 0; },
       "the model's intermediate_size is 0, but must be between 1 and"},
      {1, [](LayerConfig* layer) { layer->experts.num_experts = 0; },
       "the model's num_experts is 0, but must be between 1 and 4096"},
      {1, [](LayerConfig* layer) { layer->experts.num_experts = 5000; },
       "the model's num_experts is 5000"},
      {1, [](LayerConfig* layer) { layer->experts.num_experts_per_token = 7; },
       "the model's num_experts_per_token is 7, but must be between 1 and 6"},
      {1, [](LayerConfig* layer) { layer->experts.num_experts_per_token = 0; },
       "the model's num_experts_per_token is 0"},
      {1, [](LayerConfig* layer) { layer->experts.intermediate_size = 0; },
       "the model's expert width is 0"},
      {1, [](LayerConfig* layer) { layer->experts.scale = INFINITY; },
       "the model's scale of expert weights is inf"},
      {1, [](LayerConfig* layer) { layer->experts.num_groups = 4; },
       "1 of 4 groups of 6 experts are kept, but groups must be of equal size"},
      {1, [](LayerConfig* layer) { layer->experts.num_groups = 6; },
       "1 of 6 groups of 6 experts are kept, but groups must be of equal size and hold the 2"},
      {1, [](LayerConfig* layer) { layer->experts.num_groups = 0; },
       "the model's number of expert groups is 0, but must be between 1 and 6"},
      {1, [](LayerConfig* layer) { layer->experts.num_groups_kept = 2; },
       "the model's number of kept expert groups is 2, but must be between 1 and 1"},
      {1, [](LayerConfig* layer) { layer->experts.normalise_epsilon = -1; },
       "the model's epsilon of expert weights is -1"},
      {1, [](LayerConfig* layer) { layer->experts.shared_intermediate_size = 1 << 30; },
       "the model's shared expert width is 1073741824"},
  };
  for (const Case& c : kCases) {
    ModelConfig config = small_config();
    c.set(&config.layers[c.layer]);
    const Error error = error_of(config);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << c.message;
    EXPECT_NE(error.message.find(c.message), std::string::npos) << error.message;
  }
}

TEST(CheckConfig, NumbersOfTheNetworkAreNamedToo) {
  struct Case {
    void (*set)(ModelConfig*);
    const char* message;
  };
  constexpr Case kCases[] = {
      {[](ModelConfig* config) { config->vocab_size = 0; }, "vocab_size is 0"},
      {[](ModelConfig* config) { config->hidden_size = -1; }, "hidden_size is -1"},
      {[](ModelConfig* config) { config->layers.clear(); }, "number of layers is 0"},
      {[](ModelConfig* config) { config->norm_eps = NAN; }, "norm epsilon is nan"},
      {[](ModelConfig* config) { config->logit_scale = 1e9f; }, "logit scale is 1000000000"},
      {[](ModelConfig* config) { config->query_position_beta = 0.1f; },
       "original_max_position_embeddings is 0"},
  };
  for (const Case& c : kCases) {
    ModelConfig config = small_config();
    c.set(&config);
    const Error error = error_of(config);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << c.message;
    EXPECT_NE(error.message.find(c.message), std::string::npos) << error.message;
  }
}

}  // namespace roles_test
}  // namespace headrace
