// Networks that are not shaped like Llama, as config.json says them.
#include "model/config/read_form.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/config/config_files.h"
#include "model/testing/fake_checkpoint.h"

namespace headrace {
namespace read_form_test {

using testing::FakeCheckpoint;

Result<ModelConfig> read(std::string_view model_type, std::string_view keys) {
  return read_config_json(
      FakeCheckpoint(fmt::format(R"({{"model_type": "{}", {}}})", model_type, keys)));
}

ModelConfig config_of(std::string_view model_type, std::string_view keys) {
  const auto config = read(model_type, keys);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : ModelConfig{};
}

constexpr std::string_view kGpt =
    R"("n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 96, "vocab_size": 200)";
constexpr std::string_view kStandard =
    R"("hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 200,
       "intermediate_size": 80, "max_position_embeddings": 96)";
constexpr std::string_view kMpt =
    R"("d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 96, "vocab_size": 200)";

std::string with(std::string_view keys, std::string_view more) {
  return fmt::format("{}, {}", keys, more);
}

TEST(ReadForm, OlderNamesOfKeys) {
  const ModelConfig config = config_of("gpt2", kGpt);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_layers(), 2);
  EXPECT_EQ(config.layers[0].num_attention_heads, 4);
  EXPECT_EQ(config.max_position_embeddings, 96);
  EXPECT_EQ(config.layers[0].intermediate_size, 256);  // no key says it: four times the width
  EXPECT_EQ(config_of("gpt2", with(kGpt, R"("n_inner": 100)")).layers[0].intermediate_size, 100);
  // The family's own name of a key does not hide the usual one.
  EXPECT_EQ(config_of("gpt2", with(kGpt, R"("intermediate_size": 90)")).layers[0].intermediate_size,
            90);
}

TEST(ReadForm, Gpt2) {
  const ModelConfig config = config_of("gpt2", kGpt);
  EXPECT_EQ(config.layers[0].mlp, MlpKind::kPlain);
  EXPECT_EQ(config.layers[0].rope_idx, -1);
  EXPECT_TRUE(config.ropes.empty());
  EXPECT_TRUE(config.learned_positions);
  EXPECT_EQ(config.position_offset, 0);
  EXPECT_TRUE(config.norm_bias);
  EXPECT_EQ(config.norm, NormKind::kLayer);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config_of("opt", with(kStandard, R"("ffn_dim": 80)")).position_offset, 2);
}

TEST(ReadForm, ValuesThatWouldMakeAnotherNetworkAreRefused) {
  const auto error = [](std::string_view type, std::string_view keys) {
    const auto config = read(type, keys);
    EXPECT_FALSE(config.ok()) << type;
    EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
    return config.ok() ? "" : config.error().message;
  };
  EXPECT_EQ(error("gpt2", with(kGpt, R"("scale_attn_by_inverse_layer_idx": true)")),
            "config.json: scale_attn_by_inverse_layer_idx is 1, but this version runs gpt2 models "
            "only where it is 0");
  EXPECT_NE(error("opt", with(kStandard, R"("do_layer_norm_before": false)")).find("opt"),
            std::string::npos);
  EXPECT_NE(error("phi", with(kStandard, R"("qk_layernorm": true)")).find("qk_layernorm"),
            std::string::npos);
  EXPECT_NE(error("mpt", with(kMpt, R"("attn_config": {"qk_ln": true})")).find("qk_ln"),
            std::string::npos);
  EXPECT_NE(error("gpt_bigcode", with(kGpt, R"("multi_query": false)")).find("multi_query"),
            std::string::npos);
  // Another kind of value is bad input, not another network.
  EXPECT_EQ(read("gpt2", with(kGpt, R"("scale_attn_weights": "yes")")).error().code,
            ErrorCode::kInvalidArgument);
}

// A window as a list of layers, or as runs of layers.
TEST(ReadForm, GptNeo) {
  constexpr std::string_view kNeo =
      R"("hidden_size": 64, "num_layers": 5, "num_heads": 4, "vocab_size": 200,
         "max_position_embeddings": 96, "window_size": 16)";
  const auto windows = [&](std::string_view more) {
    std::string text;
    for (const LayerConfig& layer : config_of("gpt_neo", with(kNeo, more)).layers) {
      text += layer.sliding_window == 16 ? 'l' : 'g';
    }
    return text;
  };
  EXPECT_EQ(windows(R"("attention_types": [[["global", "local"], 2], [["global"], 1]])"), "glglg");
  EXPECT_EQ(windows(R"("attention_layers": ["local", "global", "local", "local", "global"],
                       "attention_types": [[["global"], 5]])"),
            "lgllg");
  const ModelConfig config =
      config_of("gpt_neo", with(kNeo, R"("attention_types": [[["global"], 5]])"));
  EXPECT_EQ(config.layers[0].attention_scale, 1);
  EXPECT_EQ(config.layers[0].intermediate_size, 256);
  EXPECT_TRUE(config.learned_positions);
  EXPECT_EQ(config.qkv_bias, Presence::kAbsent);
  EXPECT_EQ(config.o_bias, Presence::kRequired);
  for (const std::string_view bad :
       {R"("attention_types": [["global"], 5])", R"("attention_types": [[["global"], 4]])",
        R"("attention_types": [[[], 4611686018427387904]])", R"("attention_types": [[[7], 5]])",
        R"("attention_types": [[["swirl"], 5]])"}) {
    EXPECT_FALSE(read("gpt_neo", with(kNeo, bad)).ok()) << bad;
  }
}

TEST(ReadForm, AnAlphaIsALongerBase) {
  const auto rope = [](std::string_view dict) {
    return config_of("hunyuan_v1_dense",
                     with(kStandard, fmt::format(R"("rope_scaling": {{{}}})", dict)))
        .ropes.at(0);
  };
  const RopeConfig stretched = rope(R"("type": "dynamic", "alpha": 1000.0, "factor": 1.0)");
  EXPECT_EQ(stretched.type, RopeType::kDefault);
  EXPECT_NEAR(stretched.rope_theta, 1e4 * std::pow(1000, 16 / 14.0), 1e-3);
  EXPECT_EQ(rope(R"("type": "dynamic", "factor": 2.0)").type, RopeType::kDynamic);
  EXPECT_FALSE(read("hunyuan_v1_dense",
                    with(kStandard, R"("rope_scaling": {"type": "dynamic", "alpha": 0.5})"))
                   .ok());
}

TEST(ReadForm, FactorsOfShortAndLongSequencesAreTheSame) {
  const auto dict = [](double long_one) {
    return with(
        kStandard,
        fmt::format(
            R"("num_local_experts": 4, "num_key_value_heads": 2, "rope_scaling": {{"type": "longrope",
          "short_mscale": 1.25, "long_mscale": {}, "original_max_position_embeddings": 48,
          "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]}})",
            long_one));
  };
  EXPECT_EQ(config_of("phimoe", dict(1.25)).ropes.at(0).attention_factor, 1.25);
  const auto other = read("phimoe", dict(1.5));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("short_mscale is 1.25"), std::string::npos);
}

TEST(ReadForm, KeysOneLevelDown) {
  const ModelConfig config =
      config_of("mpt", with(kMpt, R"("attn_config": {"alibi_bias_max": 16, "alibi": true})"));
  EXPECT_EQ(config.alibi_max_bias, 16);
  EXPECT_EQ(config.alibi_scale, 1);
  EXPECT_FALSE(config.norm_bias);
  EXPECT_EQ(config_of("mpt", kMpt).alibi_max_bias, 8);
}

TEST(ReadForm, RowsOfOneTypeGoByTheirKeys) {
  const auto family = [](std::string_view type, std::string_view keys) {
    return config_of(type, keys).family;
  };
  EXPECT_EQ(family("gpt_neox", kStandard), "gpt_neox");
  EXPECT_EQ(family("gpt_neox", with(kStandard, R"("use_parallel_residual": false)")),
            "gpt_neox_serial");
  EXPECT_EQ(family("stablelm", with(kStandard, R"("num_key_value_heads": 4)")), "stablelm");
  EXPECT_EQ(family("stablelm", with(kStandard, R"("num_key_value_heads": 4,
                                                   "use_parallel_residual": true)")),
            "stablelm_parallel");
  EXPECT_EQ(family("falcon", kStandard), "falcon");
  EXPECT_EQ(family("falcon", with(kStandard, R"("parallel_attn": false)")), "falcon_rw");
  const std::string grouped = with(kStandard, R"("new_decoder_architecture": true)");
  EXPECT_EQ(family("falcon", grouped), "falcon_two_norms");
  EXPECT_EQ(family("falcon", with(grouped, R"("num_ln_in_parallel_attn": 1)")), "falcon_one_norm");
}

TEST(ReadForm, NoRowForTheKeysIsAnUnknownModel) {
  const auto config = read("falcon", with(kStandard, R"("new_decoder_architecture": true,
                                        "num_ln_in_parallel_attn": 3)"));
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
}

TEST(ReadForm, HeadsOfKeysAndValues) {
  const auto heads = [](std::string_view keys) {
    return config_of("falcon", with(kStandard, keys)).layers[0].num_key_value_heads;
  };
  EXPECT_EQ(heads(R"("num_kv_heads": 4)"), 1);  // one for all queries unless the file says no
  EXPECT_EQ(heads(R"("num_kv_heads": 4, "multi_query": false)"), 4);
  EXPECT_EQ(heads(R"("num_kv_heads": 2, "new_decoder_architecture": true)"), 2);
  EXPECT_EQ(heads(R"("new_decoder_architecture": true)"), 4);
}

TEST(ReadForm, DistanceInsteadOfRope) {
  const ModelConfig config =
      config_of("falcon", with(kStandard, R"("alibi": true, "parallel_attn": false)"));
  EXPECT_EQ(config.alibi_max_bias, 8);
  EXPECT_FLOAT_EQ(config.alibi_scale, 0.25f);  // added before the scores are scaled
  EXPECT_EQ(config.layers[0].rope_idx, -1);
  const ModelConfig rotated = config_of("falcon", kStandard);
  EXPECT_EQ(rotated.alibi_max_bias, 0);
  EXPECT_EQ(rotated.layers[0].rope_idx, 0);
}

TEST(ReadForm, NormsOfHeads) {
  EXPECT_EQ(config_of("cohere", kStandard).layers[0].qk_norm, QkNorm::kNone);
  EXPECT_EQ(config_of("cohere", with(kStandard, R"("use_qk_norm": true)")).layers[0].qk_norm,
            QkNorm::kLayerPerHead);
  const ModelConfig hunyuan = config_of("hunyuan_v1_dense", kStandard);
  EXPECT_EQ(hunyuan.layers[0].qk_norm, QkNorm::kPerHead);
  EXPECT_TRUE(hunyuan.qk_norm_after_rope);
}

TEST(ReadForm, RotatedWidths) {
  const auto dims = [](std::string_view type, std::string_view keys) {
    return config_of(type, keys).ropes[0].rope_dims;
  };
  EXPECT_EQ(dims("gptj", with(kGpt, R"("rotary_dim": 8)")), 8);
  EXPECT_EQ(dims("gpt_neox", with(kStandard, R"("rotary_pct": 0.5, "rotary_emb_base": 500)")), 8);
  EXPECT_EQ(config_of("gpt_neox", with(kStandard, R"("rotary_emb_base": 500)")).ropes[0].rope_theta,
            500);
  EXPECT_EQ(dims("phi", kStandard), 8);
  EXPECT_FALSE(read("gptj", with(kGpt, R"("rotary_dim": 32)")).ok());  // wider than a head
}

TEST(ReadForm, AHeadsBias) {
  EXPECT_EQ(config_of("phi", kStandard).head_bias, Presence::kRequired);
  EXPECT_EQ(config_of("starcoder2", kStandard).head_bias, Presence::kAbsent);
}

TEST(ReadForm, ANormWithoutWeights) {
  EXPECT_FALSE(config_of("olmo", kStandard).norm_weight);
  EXPECT_TRUE(config_of("llama", kStandard).norm_weight);
}

TEST(ReadForm, AListTakesWindowsAway) {
  const auto windows = [](std::string_view keys) {
    std::string text;
    for (const LayerConfig& layer : config_of("ministral", with(kStandard, keys)).layers) {
      text += layer.sliding_window > 0 ? 's' : 'f';
    }
    return text;
  };
  EXPECT_EQ(windows(R"("num_key_value_heads": 2, "sliding_window": 32)"), "ss");
  EXPECT_EQ(windows(R"("num_key_value_heads": 2, "sliding_window": 32,
                       "layer_types": ["full_attention", "sliding_attention"])"),
            "fs");
}

TEST(ReadForm, AWindowsFirstLayer) {
  const ModelConfig config =
      config_of("cwm", R"("hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8,
                "intermediate_size": 80, "vocab_size": 200, "sliding_window": 32)");
  std::string windows;
  for (const LayerConfig& layer : config.layers) windows += layer.sliding_window > 0 ? 's' : 'f';
  EXPECT_EQ(windows, "fsssfs");
}

}  // namespace read_form_test
}  // namespace headrace
