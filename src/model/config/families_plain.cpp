// Families whose MLP has no gate: GPT-2 and its descendants, and later networks with squared relu.
#include "model/config/family_rows.h"
#include "model/config/role_row.h"

namespace headrace {
namespace {

// ---- Names --------------------------------------------------------------------------------------

constexpr NamePrefix kTransformer[] = {{"transformer.", ""}, {"", ""}};
constexpr NamePrefix kNeoxPrefix[] = {{"gpt_neox.", ""}, {"", ""}};
constexpr NamePrefix kOptPrefix[] = {{"model.decoder.", ""}, {"decoder.", ""}};
constexpr NamePrefix kBioGptPrefix[] = {{"biogpt.", ""}};

// {.roles} of networks that are Llama's but for a few names.
constexpr NameRow kStarcoderRoles[] = {{Role::kUp, {"mlp.c_fc"}}, {Role::kDown, {"mlp.c_proj"}}};
constexpr NameRow kPhiRoles[] = {{Role::kFinalNorm, {"final_layernorm"}},
                                 {Role::kAttentionOut, {"self_attn.dense"}},
                                 {Role::kUp, {"mlp.fc1"}},
                                 {Role::kDown, {"mlp.fc2"}}};
constexpr NameRow kNeoxRoles[] = {{Role::kEmbedding, {"embed_in"}},
                                  {Role::kFinalNorm, {"final_layer_norm"}},
                                  {Role::kHead, {"embed_out"}},
                                  {Role::kQkv, {}, "attention.query_key_value"},
                                  {Role::kAttentionOut, {"attention.dense"}},
                                  {Role::kUp, {"mlp.dense_h_to_4h"}},
                                  {Role::kDown, {"mlp.dense_4h_to_h"}}};
constexpr NameRow kGpt2Roles[] = {{Role::kEmbedding, {"wte"}},
                                  {Role::kPositions, {"wpe"}},
                                  {Role::kFinalNorm, {"ln_f"}},
                                  {Role::kQkv, {}, "attn.c_attn"},
                                  {Role::kAttentionOut, {"attn.c_proj"}},
                                  {Role::kUp, {"mlp.c_fc"}},
                                  {Role::kDown, {"mlp.c_proj"}}};
constexpr NameRow kGptNeoRoles[] = {
    {Role::kEmbedding, {"wte"}},
    {Role::kPositions, {"wpe"}},
    {Role::kFinalNorm, {"ln_f"}},
    {Role::kQkv, {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"}},
    {Role::kAttentionOut, {"attn.attention.out_proj"}},
    {Role::kUp, {"mlp.c_fc"}},
    {Role::kDown, {"mlp.c_proj"}}};
constexpr NameRow kGptJRoles[] = {{Role::kEmbedding, {"wte"}},
                                  {Role::kFinalNorm, {"ln_f"}},
                                  {Role::kQkv, {"attn.q_proj", "attn.k_proj", "attn.v_proj"}},
                                  {Role::kAttentionOut, {"attn.out_proj"}},
                                  {Role::kUp, {"mlp.fc_in"}},
                                  {Role::kDown, {"mlp.fc_out"}}};
constexpr NameRow kCodegenRoles[] = {
    {Role::kEmbedding, {"wte"}},       {Role::kFinalNorm, {"ln_f"}},
    {Role::kQkv, {}, "attn.qkv_proj"}, {Role::kAttentionOut, {"attn.out_proj"}},
    {Role::kUp, {"mlp.fc_in"}},        {Role::kDown, {"mlp.fc_out"}}};
constexpr NameRow kOptRoles[] = {{Role::kFinalNorm, {"final_layer_norm"}},
                                 {Role::kAttentionOut, {"self_attn.out_proj"}},
                                 {Role::kUp, {"fc1"}},
                                 {Role::kDown, {"fc2"}}};
constexpr NameRow kBioGptRoles[] = {{Role::kFinalNorm, {"layer_norm"}},
                                    {Role::kHead, {"output_projection"}},
                                    {Role::kAttentionOut, {"self_attn.out_proj"}},
                                    {Role::kUp, {"fc1"}},
                                    {Role::kDown, {"fc2"}}};
constexpr NameRow kBloomRoles[] = {{Role::kEmbedding, {"word_embeddings"}},
                                   {Role::kEmbeddingNorm, {"word_embeddings_layernorm"}},
                                   {Role::kFinalNorm, {"ln_f"}},
                                   {Role::kQkv, {}, "self_attention.query_key_value"},
                                   {Role::kAttentionOut, {"self_attention.dense"}},
                                   {Role::kUp, {"mlp.dense_h_to_4h"}},
                                   {Role::kDown, {"mlp.dense_4h_to_h"}}};
constexpr NameRow kMptRoles[] = {
    {Role::kEmbedding, {"wte"}},   {Role::kFinalNorm, {"norm_f"}},
    {Role::kQkv, {}, "attn.Wqkv"}, {Role::kAttentionOut, {"attn.out_proj"}},
    {Role::kUp, {"ffn.up_proj"}},  {Role::kDown, {"ffn.down_proj"}}};

constexpr KeyAlias kGptKeys[] = {{"hidden_size", "n_embd"},
                                 {"num_hidden_layers", "n_layer"},
                                 {"num_attention_heads", "n_head"},
                                 {"max_position_embeddings", "n_positions"},
                                 {"intermediate_size", "n_inner"}};
constexpr KeyAlias kGptNeoKeys[] = {{"num_hidden_layers", "num_layers"},
                                    {"num_attention_heads", "num_heads"},
                                    {"layer_types", "attention_layers"},
                                    {"sliding_window", "window_size"}};
constexpr KeyAlias kNeoxKeys[] = {{"partial_rotary_factor", "rotary_pct"},
                                  {"rope_theta", "rotary_emb_base"}};
constexpr KeyAlias kOptKeys[] = {{"intermediate_size", "ffn_dim"}};
constexpr KeyAlias kBloomKeys[] = {{"num_hidden_layers", "n_layer"},
                                   {"num_attention_heads", "n_head"},
                                   {"hidden_size", "n_embed"},
                                   {"max_position_embeddings", "seq_length"}};
constexpr KeyAlias kMptKeys[] = {{"hidden_size", "d_model"},
                                 {"num_hidden_layers", "n_layers"},
                                 {"num_attention_heads", "n_heads"},
                                 {"num_key_value_heads", "kv_n_heads"},
                                 {"max_position_embeddings", "max_seq_len"}};
constexpr KeyAlias kFalconKeys[] = {{"intermediate_size", "ffn_hidden_size"},
                                    {"num_hidden_layers", "n_layer"},
                                    {"num_attention_heads", "n_head"}};
constexpr KeyAlias kFalconGroupKeys[] = {{"intermediate_size", "ffn_hidden_size"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"num_key_value_heads", "num_kv_heads"}};

// ---- Blocks -------------------------------------------------------------------------------------

constexpr BlockForm pre(std::string_view first, std::string_view second) {
  return {.safetensors = {first, "", second, ""}, .gguf = {"attn_norm", "", "ffn_norm", ""}};
}
constexpr BlockForm kPreGpt2 = pre("ln_1", "ln_2");
constexpr BlockForm kPreApertus = pre("attention_layernorm", "feedforward_layernorm");
constexpr BlockForm kPreOpt = pre("self_attn_layer_norm", "final_layer_norm");
constexpr BlockForm kPreMpt = pre("norm_1", "norm_2");
constexpr BlockForm kParallelGptJ = {
    .parallel = true, .safetensors = {"ln_1", "", "", ""}, .gguf = {"attn_norm", "", "", ""}};
constexpr BlockForm kParallelFalcon = {.parallel = true,
                                       .safetensors = {"ln_attn", "", "ln_mlp", ""},
                                       .gguf = {"attn_norm_2", "", "attn_norm", ""}};

// ---- Rows ---------------------------------------------------------------------------------------

constexpr DefaultRow gpt_defaults(int64_t context, std::string_view activation) {
  return {.max_position_embeddings = context,
          .eps_key = "layer_norm_epsilon",
          .eps = 1e-5,
          .activation_key = "activation_function",
          .activation = activation,
          .tied = true};
}
constexpr DefaultRow untied(DefaultRow row) {
  row.tied = false;
  return row;
}

constexpr Family neox(std::string_view name, const BlockForm* block, int parallel) {
  return {.name = name,
          .model_types = {"gpt_neox"},
          .block = block,
          .norm = NormKind::kLayer,
          .qkv_bias = kBiasFlagOn,
          .o_bias = kBiasFlagOn,
          .mlp_bias = kBiasAlways,
          .defaults = {.eps_key = "layer_norm_eps", .eps = 1e-5, .activation = "gelu"},
          .rope = {.partial = 0.25},
          .gguf = {.architecture = "gptneox", .parallel = parallel},
          .form = {.norm_bias = kBiasAlways,
                   .plain_mlp = true,
                   .qkv_order = QkvOrder::kGroups,
                   .names = {.prefixes = kNeoxPrefix, .roles = kNeoxRoles},
                   .keys = {.aliases = kNeoxKeys},
                   .when = {{{"use_parallel_residual", static_cast<double>(parallel), 1}}}}};
}

constexpr Family falcon(std::string_view name, const BlockForm* block, const KeyValues& when) {
  Family row = {.name = name,
                .model_types = {"falcon"},
                .block = block,
                .norm = NormKind::kLayer,
                .qkv_bias = {"bias", false},
                .o_bias = {"bias", false},
                .mlp_bias = {"bias", false},
                .defaults = {.eps_key = "layer_norm_epsilon",
                             .eps = 1e-5,
                             .activation_key = "activation",
                             .activation = "gelu",
                             .tied = true},
                .form = {.norm_bias = kBiasAlways,
                         .plain_mlp = true,
                         .qkv_order = QkvOrder::kGroups,
                         .alibi = {.on = {"alibi", false}, .scaled = true},
                         .mlp_factor = 4,
                         .names = {.prefixes = kTransformer, .layers = "h.", .roles = kBloomRoles},
                         .keys = {.aliases = kFalconKeys},
                         .when = when}};
  return row;
}
// One group of keys and values, or as many as there are queries.
constexpr Family falcon_single(std::string_view name, const BlockForm* block,
                               const KeyValues& when) {
  Family row = falcon(name, block, when);
  row.form.multi_query_key = "multi_query";
  return row;
}
constexpr Family falcon_groups(std::string_view name, const BlockForm* block,
                               std::string_view gguf_tensor, const KeyValues& when) {
  Family row = falcon(name, block, when);
  row.form.keys = {.aliases = kFalconGroupKeys};
  row.gguf = {.architecture = "falcon", .tensor = gguf_tensor};
  return row;
}

constexpr Family kPlainFamilies[] = {
    {.name = "arcee",
     .model_types = {"arcee"},
     .block = &kPre,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .mlp_bias = kMlpBiasFlag,
     .defaults = {.max_position_embeddings = 4096, .eps = 1e-5, .activation = "relu2"},
     .gguf = {.architecture = "arcee", .permuted = true},
     .form = {.plain_mlp = true}},
    {.name = "nemotron",
     .model_types = {"nemotron"},
     .block = &kPre,
     .norm = NormKind::kLayer,
     .norm_weight_plus_one = true,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .mlp_bias = kMlpBiasFlag,
     .defaults = {.max_position_embeddings = 4096,
                  .eps_key = "norm_eps",
                  .eps = 1e-5,
                  .activation = "relu2"},
     .rope = {.partial = 0.5},
     .gguf = {.architecture = "nemotron"},
     .form = {.norm_bias = kBiasAlways, .plain_mlp = true}},
    {.name = "apertus",
     .model_types = {"apertus"},
     .block = &kPreApertus,
     .qk_norm = QkNorm::kPerHead,
     .qkv_bias = kBiasFlag,
     .o_bias = kBiasFlag,
     .defaults = {.max_position_embeddings = 65536, .eps = 1e-5, .activation = "xielu"},
     .rope = {.theta = 12e6, .required = true},
     .gguf = {.architecture = "apertus"},
     .form = {.plain_mlp = true}},
    {.name = "jais2",
     .model_types = {"jais2"},
     .block = &kPre,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasFlagOn,
     .o_bias = kBiasFlagOn,
     .mlp_bias = {"mlp_bias", true},
     .defaults = {.max_position_embeddings = 8192,
                  .eps_key = "layer_norm_eps",
                  .eps = 1e-5,
                  .activation = "relu2"},
     .rope = {.theta = 5e5},
     .gguf = {.architecture = "jais2"},
     .form = {.norm_bias = kBiasAlways, .plain_mlp = true}},
    {.name = "starcoder2",
     .model_types = {"starcoder2"},
     .block = &kPre,
     .norm = NormKind::kLayer,
     .qkv_bias = {"use_bias", true},
     .o_bias = {"use_bias", true},
     .mlp_bias = {"use_bias", true},
     .defaults = {.num_key_value_heads = 2,
                  .max_position_embeddings = 4096,
                  .eps_key = "norm_epsilon",
                  .eps = 1e-5,
                  .activation = "gelu_pytorch_tanh",
                  .tied = true},
     .window = {.rule = WindowRule::kAll},
     .gguf = {.architecture = "starcoder2", .default_window = false},
     .form = {.norm_bias = kBiasAlways, .plain_mlp = true, .names = {.roles = kStarcoderRoles}}},
    {.name = "phi",
     .model_types = {"phi"},
     .block = &kParallel,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasAlways,
     .o_bias = kBiasAlways,
     .mlp_bias = kBiasAlways,
     .defaults = {.eps_key = "layer_norm_eps", .eps = 1e-5, .activation = "gelu_new"},
     .rope = {.partial = 0.5},
     .gguf = {.architecture = "phi2"},
     .form = {.norm_bias = kBiasAlways,
              .head_bias = kBiasAlways,
              .plain_mlp = true,
              .names = {.roles = kPhiRoles},
              .needs = {{{"qk_layernorm", 0, 0}}}}},
    neox("gpt_neox", &kParallelTwo, 1),
    neox("gpt_neox_serial", &kPre, 0),
    {.name = "gpt2",
     .model_types = {"gpt2"},
     .block = &kPreGpt2,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasAlways,
     .o_bias = kBiasAlways,
     .mlp_bias = kBiasAlways,
     .defaults = gpt_defaults(1024, "gelu_new"),
     .rope = {.layers = RopeLayers::kNone},
     .gguf = {.architecture = "gpt2"},
     .form = {.norm_bias = kBiasAlways,
              .plain_mlp = true,
              .positions = {.learned = true},
              .mlp_factor = 4,
              .transposed = true,
              .names = {.prefixes = kTransformer, .layers = "h.", .roles = kGpt2Roles},
              .keys = {.aliases = kGptKeys},
              .needs = {{{"scale_attn_weights", 1, 1},
                         {"scale_attn_by_inverse_layer_idx", 0, 0},
                         {"add_cross_attention", 0, 0}}}}},
    {.name = "gpt_bigcode",
     .model_types = {"gpt_bigcode"},
     .block = &kPreGpt2,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasAlways,
     .o_bias = kBiasAlways,
     .mlp_bias = kBiasAlways,
     .defaults = gpt_defaults(1024, "gelu_pytorch_tanh"),
     .rope = {.layers = RopeLayers::kNone},
     .gguf = {.architecture = "starcoder"},
     .form = {.norm_bias = kBiasAlways,
              .plain_mlp = true,
              .positions = {.learned = true},
              .mlp_factor = 4,
              .multi_query_key = "multi_query",
              .names = {.prefixes = kTransformer, .layers = "h.", .roles = kGpt2Roles},
              .keys = {.aliases = kGptKeys},
              .needs = {{{"multi_query", 1, 1}, {"scale_attn_weights", 1, 1}}}}},
    {.name = "gpt_neo",
     .model_types = {"gpt_neo"},
     .block = &kPreGpt2,
     .norm = NormKind::kLayer,
     .o_bias = kBiasAlways,
     .mlp_bias = kBiasAlways,
     .defaults = gpt_defaults(2048, "gelu_new"),
     .rope = {.layers = RopeLayers::kNone},
     .window = {.rule = WindowRule::kListed, .window = 256},
     .scale = {.attention = 1},
     .form = {.norm_bias = kBiasAlways,
              .plain_mlp = true,
              .positions = {.learned = true},
              .mlp_factor = 4,
              .names = {.prefixes = kTransformer, .layers = "h.", .roles = kGptNeoRoles},
              .keys = {.aliases = kGptNeoKeys}}},
    {.name = "gptj",
     .model_types = {"gptj"},
     .block = &kParallelGptJ,
     .norm = NormKind::kLayer,
     .mlp_bias = kBiasAlways,
     .defaults = untied(gpt_defaults(2048, "gelu_new")),
     .rope = {.pairing = RopePairing::kInterleaved, .partial = 1, .dims_key = "rotary_dim"},
     .form = {.norm_bias = kBiasAlways,
              .head_bias = kBiasAlways,
              .plain_mlp = true,
              .mlp_factor = 4,
              .names = {.prefixes = kTransformer, .layers = "h.", .roles = kGptJRoles},
              .keys = {.aliases = kGptKeys}}},
    {.name = "codegen",
     .model_types = {"codegen"},
     .block = &kParallelGptJ,
     .norm = NormKind::kLayer,
     .mlp_bias = kBiasAlways,
     .defaults = untied(gpt_defaults(2048, "gelu_new")),
     .rope = {.pairing = RopePairing::kInterleaved, .partial = 1, .dims_key = "rotary_dim"},
     .form = {.norm_bias = kBiasAlways,
              .head_bias = kBiasAlways,
              .plain_mlp = true,
              .qkv_order = QkvOrder::kFourBlocks,
              .mlp_factor = 4,
              .names = {.prefixes = kTransformer, .layers = "h.", .roles = kCodegenRoles},
              .keys = {.aliases = kGptKeys}}},
    {.name = "opt",
     .model_types = {"opt"},
     .block = &kPreOpt,
     .norm = NormKind::kLayer,
     .qkv_bias = {"enable_bias", true},
     .o_bias = {"enable_bias", true},
     .mlp_bias = {"enable_bias", true},
     .defaults =
         {.eps = 1e-5, .activation_key = "activation_function", .activation = "relu", .tied = true},
     .rope = {.layers = RopeLayers::kNone},
     .form = {.norm_bias = kBiasAlways,
              .plain_mlp = true,
              .positions = {.learned = true, .offset = 2},
              .names = {.prefixes = kOptPrefix, .roles = kOptRoles},
              .keys = {.aliases = kOptKeys},
              .needs = {{{"do_layer_norm_before", 1, 1},
                         {"_remove_final_layer_norm", 0, 0},
                         {"layer_norm_elementwise_affine", 1, 1}}}}},
    {.name = "biogpt",
     .model_types = {"biogpt"},
     .block = &kPreOpt,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasAlways,
     .o_bias = kBiasAlways,
     .mlp_bias = kBiasAlways,
     .defaults = {.max_position_embeddings = 1024,
                  .eps_key = "layer_norm_eps",
                  .eps = 1e-12,
                  .activation = "gelu",
                  .tied = true},
     .rope = {.layers = RopeLayers::kNone},
     .scale = {.embedding_sqrt_hidden = true},
     .form = {.norm_bias = kBiasAlways,
              .plain_mlp = true,
              .positions = {.learned = true, .offset = 2},
              .names = {.prefixes = kBioGptPrefix, .roles = kBioGptRoles},
              .needs = {{{"scale_embedding", 1, 1}}}}},
    {.name = "bloom",
     .model_types = {"bloom"},
     .block = &kPre,
     .norm = NormKind::kLayer,
     .qkv_bias = kBiasAlways,
     .o_bias = kBiasAlways,
     .mlp_bias = kBiasAlways,
     .defaults = {.eps_key = "layer_norm_epsilon",
                  .eps = 1e-5,
                  .activation_key = "activation_function",
                  .activation = "gelu_new",
                  .tied = true},
     .rope = {.layers = RopeLayers::kNone},
     .gguf = {.architecture = "bloom"},
     .form = {.norm_bias = kBiasAlways,
              .plain_mlp = true,
              .qkv_order = QkvOrder::kGroups,
              .embedding_norm = true,
              .alibi = {.on = kBiasAlways},
              .mlp_factor = 4,
              .names = {.prefixes = kTransformer, .layers = "h.", .roles = kBloomRoles},
              .keys = {.aliases = kBloomKeys},
              .needs = {{{"apply_residual_connection_post_layernorm", 0, 0}}}}},
    {.name = "mpt",
     .model_types = {"mpt"},
     .block = &kPreMpt,
     .norm = NormKind::kLayer,
     .defaults = {.eps_key = "layer_norm_epsilon", .eps = 1e-5, .activation = "gelu", .tied = true},
     .rope = {.layers = RopeLayers::kNone},
     .gguf = {.architecture = "mpt"},
     .clip_qkv = true,
     .form =
         {.plain_mlp = true,
          .alibi = {.on = kBiasAlways, .max_bias_key = "alibi_bias_max"},
          .mlp_factor = 4,
          .names = {.prefixes = kTransformer, .layers = "blocks.", .roles = kMptRoles},
          .keys = {.aliases = kMptKeys, .nested = {"attn_config"}},
          .needs = {{{"no_bias", 1, 1}, {"alibi", 1, 1}, {"qk_ln", 0, 0}, {"prefix_lm", 0, 0}}}}},
    falcon_single("falcon", &kParallel,
                  {{{"new_decoder_architecture", 0, 0}, {"parallel_attn", 1, 1}}}),
    falcon_single("falcon_rw", &kPre,
                  {{{"new_decoder_architecture", 0, 0}, {"parallel_attn", 0, 1}}}),
    falcon_groups("falcon_two_norms", &kParallelFalcon, "blk.0.attn_norm_2.weight",
                  {{{"new_decoder_architecture", 1, 0}, {"num_ln_in_parallel_attn", 2, 2}}}),
    falcon_groups("falcon_one_norm", &kParallel, "",
                  {{{"new_decoder_architecture", 1, 0}, {"num_ln_in_parallel_attn", 1, 2}}}),
};

}  // namespace

std::span<const Family> plain_families() { return kPlainFamilies; }

}  // namespace headrace
