// Further families whose layers are softmax attention and a mixture of experts.
#include "model/config/family_rows.h"
#include "model/config/role_row.h"

namespace headrace {
namespace {

constexpr BiasRule kNormWhereAsked = {"norm_topk_prob", true};
constexpr BiasRule kUseBias = {"use_bias", false};

constexpr ExpertRow kDots1 = {.num_experts = 128,
                              .num_experts_per_token = 6,
                              .width = 1408,
                              .score = RouterScore::kSigmoid,
                              .normalise = {"norm_topk_prob", false},
                              .gguf_normalise = true,
                              .normalise_epsilon = 1e-20,
                              .scale = true,
                              .selection_bias = true,
                              .groups = true,
                              .shared_count = 1,
                              .dense = DenseLayers::kLeading};
constexpr ExpertRow kSolarOpen = {.num_experts = 128,
                                  .num_experts_per_token = 8,
                                  .width = 1280,
                                  .score = RouterScore::kSigmoid,
                                  .normalise = kNormWhereAsked,
                                  .normalise_epsilon = 1e-20,
                                  .scale = true,
                                  .selection_bias = true,
                                  .groups = true,
                                  .shared_count = 1};
constexpr ExpertRow kErnieMoe = {.num_experts = 64,
                                 .num_experts_per_token = 6,
                                 .width = 1536,
                                 .normalise = {"", true},
                                 .gguf_normalise = true,
                                 .selection_bias = true,
                                 .shared_count = 2,
                                 .dense = DenseLayers::kLeading,
                                 .num_leading = 1};
constexpr ExpertRow kHunyuanMoe = {.num_experts = 1,
                                   .num_experts_per_token = 1,
                                   .width_key = "intermediate_size",
                                   .normalise = {"", true},
                                   .gguf_normalise = true,
                                   .shared_width_key = "intermediate_size"};
constexpr ExpertRow kFlexOlmo = {.num_experts = 7,
                                 .num_experts_per_token = 5,
                                 .width_key = "intermediate_size",
                                 .normalise = {"norm_topk_prob", false}};
constexpr ExpertRow kPhiMoe = {.num_experts = 16,
                               .num_experts_per_token = 2,
                               .width_key = "intermediate_size",
                               .score = RouterScore::kSparseMixer,
                               .jitter = 0.01};

constexpr NameRow kErnieNames[] = {
    {Role::kRouterSelectionBias, {"mlp.moe_statics.e_score_correction_bias"}}};
constexpr NameRow kHunyuanMoeNames[] = {
    {Role::kQNorm, {"self_attn.query_layernorm"}},
    {Role::kKNorm, {"self_attn.key_layernorm"}},
    {Role::kRouter, {"mlp.gate.wg"}},
    {Role::kSharedGateUp, {"mlp.shared_mlp.gate_proj", "mlp.shared_mlp.up_proj"}},
    {Role::kSharedDown, {"mlp.shared_mlp.down_proj"}}};

constexpr KeyAlias kErnieKeys[] = {{"num_experts", "moe_num_experts"},
                                   {"num_experts_per_tok", "moe_k"},
                                   {"n_shared_experts", "moe_num_shared_experts"},
                                   {"first_k_dense_replace", "moe_layer_start_index"}};
constexpr KeyAlias kHunyuanKeys[] = {{"num_experts_per_tok", "moe_topk"}};

constexpr Family kRoutedFamilies[] = {
    {.name = "dots1",
     .model_types = {"dots1"},
     .block = &kPre,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_key_value_heads = 32},
     .window = {.rule = WindowRule::kListed},
     .gguf = {.architecture = "dots1", .default_window = false},
     .experts = &kDots1},
    // Converters write it as glm4moe, without norms of queries and keys: glm4_moe's row reads that.
    {.name = "solar_open",
     .model_types = {"solar_open"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .defaults = {.num_key_value_heads = 8,
                  .head_dim = 128,
                  .max_position_embeddings = 131072,
                  .eps = 1e-5},
     .rope = {.theta = 1e6},
     .experts = &kSolarOpen},
    {.name = "ernie4_5_moe",
     .model_types = {"ernie4_5_moe"},
     .block = &kPre,
     .qkv_bias = kUseBias,
     .o_bias = kUseBias,
     .mlp_bias = kUseBias,
     .defaults =
         {.num_key_value_heads = 4, .max_position_embeddings = 131072, .eps = 1e-5, .tied = true},
     .rope = {.theta = 5e5, .pairing = RopePairing::kInterleaved},
     .gguf = {.architecture = "ernie4_5-moe"},
     .experts = &kErnieMoe,
     .form = {.names = {.roles = kErnieNames},
              .keys = {.aliases = kErnieKeys},
              .needs = {{{"use_bias", 0, 0}, {"moe_layer_interval", 1, 1}}}}},
    {.name = "hunyuan_v1_moe",
     .model_types = {"hunyuan_v1_moe"},
     .block = &kPre,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.eps = 1e-5},
     .gguf = {.architecture = "hunyuan-moe"},
     .experts = &kHunyuanMoe,
     .form = {.norm_after_rope = true,
              .names = {.roles = kHunyuanMoeNames},
              .keys = {.aliases = kHunyuanKeys}}},
    {.name = "phimoe",
     .model_types = {"phimoe"},
     .block = &kPre,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072, .eps = 1e-5},
     .rope = {.theta = 1e6},
     .window = {.rule = WindowRule::kAll},
     .gguf = {.architecture = "phimoe", .default_window = false},
     .experts = &kPhiMoe,
     .form = {.norm_bias = kBiasAlways,
              .head_bias = {"lm_head_bias", false},
              .needs = {{{"num_experts_per_tok", 2, 2}}}}},
    {.name = "flex_olmo",
     .model_types = {"flex_olmo"},
     .block = &kPost,
     .qk_norm = QkNorm::kWhole,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.max_position_embeddings = 4096},
     .rope = {.theta = 5e5},
     .experts = &kFlexOlmo},
};

}  // namespace

std::span<const Family> routed_families() { return kRoutedFamilies; }

}  // namespace headrace
