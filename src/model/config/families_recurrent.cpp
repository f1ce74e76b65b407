// Networks with short convolutions or state space layers.
#include "model/config/family_rows.h"
#include "model/config/role_row.h"

namespace headrace {
namespace {

constexpr BlockForm kOperator = {.safetensors = {"operator_norm", "", "ffn_norm", ""},
                                 .gguf = {"attn_norm", "", "ffn_norm", ""}};
constexpr BlockForm kMixerOnly = {.safetensors = {"norm", "", "", ""},
                                  .gguf = {"attn_norm", "", "", ""}};

constexpr ShortConvRow kLfm2;
constexpr ShortConvRow kLfm2MoeConv = {.adjusts_width = false};
constexpr ScanRow kMamba2;
constexpr ScanRow kGraniteHybrid = {.hybrid = true,
                                    .num_heads_key = "mamba_n_heads",
                                    .head_dim_key = "mamba_d_head",
                                    .head_dim = 0,
                                    .num_groups_key = "mamba_n_groups",
                                    .num_groups = 1,
                                    .state_width_key = "mamba_d_state",
                                    .state_width = 256,
                                    .num_taps_key = "mamba_d_conv",
                                    .expand_key = "mamba_expand",
                                    .conv_bias_key = "mamba_conv_bias",
                                    .bias_key = "mamba_proj_bias"};

constexpr ExpertRow kGraniteExperts = {.num_experts = 8,
                                       .num_experts_per_token = 2,
                                       .width_key = "intermediate_size",
                                       .score = RouterScore::kSoftmaxChosen,
                                       .shared_width_key = "shared_intermediate_size",
                                       .shared_width = 1024};

constexpr ExpertRow kLfm2Moe = {.num_experts = 32,
                                .num_experts_per_token = 4,
                                .width = 1792,
                                .score = RouterScore::kSigmoid,
                                .normalise = {"norm_topk_prob", true},
                                .gguf_normalise = true,
                                .normalise_epsilon = 1e-6,
                                .scale = true,
                                .selection_bias = true,
                                .dense = DenseLayers::kLeading,
                                .num_leading = 2};
constexpr NameRow kLfm2MoeNames[] = {
    {Role::kRouter, {"feed_forward.gate"}},
    {Role::kRouterSelectionBias, {"feed_forward.expert_bias"}},
    {Role::kExpertGateUp, {"feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"}},
    {Role::kExpertDown, {"feed_forward.experts.{}.w2"}}};
constexpr KeyAlias kLfm2MoeKeys[] = {{"first_k_dense_replace", "num_dense_layers"}};

constexpr Family kRecurrentFamilies[] = {
    {.name = "lfm2",
     .model_types = {"lfm2"},
     .block = &kOperator,
     .qk_norm = QkNorm::kPerHead,
     .defaults = {.num_key_value_heads = 8,
                  .max_position_embeddings = 128000,
                  .intermediate_size = 12288,
                  .eps_key = "norm_eps",
                  .eps = 1e-5,
                  .activation_key = {},
                  .tied = true},
     .rope = {.theta = 1e6},
     .gguf = {.architecture = "lfm2"},
     .short_conv = &kLfm2},
    {.name = "lfm2_moe",
     .model_types = {"lfm2_moe"},
     .block = &kOperator,
     .qk_norm = QkNorm::kPerHead,
     .defaults = {.num_key_value_heads = 8,
                  .max_position_embeddings = 128000,
                  .eps_key = "norm_eps",
                  .eps = 1e-5,
                  .activation_key = {},
                  .tied = true},
     .rope = {.theta = 1e6},
     .gguf = {.architecture = "lfm2moe"},
     .experts = &kLfm2Moe,
     .form = {.names = {.roles = kLfm2MoeNames},
              .keys = {.aliases = kLfm2MoeKeys},
              .needs = {{{"use_expert_bias", 1, 1}}}},
     .short_conv = &kLfm2MoeConv},
    {.name = "mamba2",
     .model_types = {"mamba2"},
     .block = &kMixerOnly,
     .defaults = {.num_attention_heads = 1,
                  .max_position_embeddings = 1 << 20,
                  .intermediate_size = 1,
                  .eps_key = "layer_norm_epsilon",
                  .eps = 1e-5},
     .gguf = {.architecture = "mamba2"},
     .scan = &kMamba2},
    {.name = "granitemoehybrid",
     .model_types = {"granitemoehybrid"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .scale = kGraniteScale,
     .gguf = {.architecture = "granitehybrid", .permuted = true, .finetuned_rope = true},
     .experts = &kGraniteExperts,
     .scan = &kGraniteHybrid},
};

}  // namespace

std::span<const Family> recurrent_families() { return kRecurrentFamilies; }

}  // namespace headrace
