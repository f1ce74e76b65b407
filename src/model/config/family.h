// Family: one row per model family says what varies between networks, and nothing else does.
//
// A row starts as Llama and states its differences. The rows are in families_*.cpp, families.h
// finds one. Sources: the configuration and modelling files of each family as published with its
// checkpoints, and the GGUF converters' names and transformations. Constant data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "model/config/config.h"
#include "model/config/form_row.h"

namespace headrace {

// The places a norm can stand in a layer, in the order of use.
enum NormSlot : uint8_t { kNormAttention, kNormPostAttention, kNormMlp, kNormPostMlp, kNumNorms };
using NormNames = std::array<std::string_view, kNumNorms>;  // empty: no norm there

// How norms and residual adds are arranged around attention A and MLP M. Empty names mean identity:
//   x += N2(A(N1 x)); x += N4(M(N3 x)),   or in parallel   n = N1 x; x += A(n) + M(n).
struct BlockForm {
  bool pre_norms = true;
  bool post_norms = false;
  bool parallel = false;
  NormNames safetensors = {};
  NormNames gguf = {};
};

enum class WindowRule : uint8_t {
  kNone,          // no window, whatever the file says
  kAll,           // every layer, if a window is given
  kAllIfFlag,     // every layer, if use_sliding_window
  kEvenBelow,     // even layers below max_window_layers, if use_sliding_window
  kFromLayer,     // layers from max_window_layers on, if use_sliding_window
  kPeriod,        // all but every n-th layer
  kNoRopeLayers,  // layers without rope, if use_sliding_window
  kListed,        // every layer, if a window is given, but for those that a list says have none
};

enum class RopeLayers : uint8_t {
  kAll,
  kSliding,          // only layers with a window
  kSlidingIfWindow,  // only layers with a window; all of them if the model has no window
  kListed,           // no_rope_layers[i] != 0, else all but every n-th
  kNone,
};

// Config keys with defaults. An empty key means that the family has no such setting.
struct ScaleRow {
  bool embedding_sqrt_hidden = false;
  std::string_view embedding_key = {};
  std::string_view residual_key = {};
  std::string_view attention_key = {};         // the scale itself; default 1
  std::string_view attention_scalar_key = {};  // scale = value^-1/2
  double attention_scalar = 0;                 // its default
  std::string_view logit_key = {};
  double logit_scale = 1;  // its default
  bool logit_divides = false;
  double attention = 0;          // the scale itself, whatever the head; 0: head_dim^-1/2
  double attention_softcap = 0;  // default of attn_logit_softcapping; 0: key is not read
  bool logit_softcap_read = false;
  double logit_softcap = 0;  // default of final_logit_softcapping
};

struct RopeRow {
  double theta = 1e4;
  RopePairing pairing = RopePairing::kHalf;
  double partial = 0;  // default of partial_rotary_factor; 0: the family rotates all of head_dim
  RopeLayers layers = RopeLayers::kAll;
  bool per_layer_type = false;        // sliding layers have their own base and are never scaled
  std::string_view sliding_key = {};  // older key of that base
  double sliding_theta = 0;           // its default
  bool yarn_is_longrope = false;      // older files call longrope so
  bool position_scale = false;        // q grows with the position (llama_4_scaling_beta)
  int64_t original = 0;               // default of original_max_position_embeddings; 0: none
  std::string_view dims_key = {};  // the rotated width itself, if partial_rotary_factor is absent
  // Without a rope dictionary: yarn of this factor over this length, its ramp not rounded (nor is
  // that of GGUF files, which do not say). 0: none.
  double yarn_factor = 0;
  int64_t yarn_original = 0;
  bool required = false;    // no defaults: config.json must state its rope
  double proportional = 0;  // full layers without a rope in the file: this share turns
};

struct WindowRow {
  WindowRule rule = WindowRule::kNone;
  int64_t window = 0;  // default of sliding_window; 0: null
  int period = 0;
  std::string_view period_key = {};  // of config.json; empty: the period is fixed
  bool full_first = false;           // the layer without a window is a period's first, not its last
  bool last_is_full = false;         // whatever a list says
};

// What a GGUF converter did to this family's tensors and what it left out of the file.
struct GgufRow {
  std::string_view architecture = {};  // empty: this family has none of its own
  bool permuted = false;               // q and k rows are interleaved: undone at load
  bool sections_mean_half = false;     // rope.dimension_sections: stored for half rotation
  bool finetuned_rope = false;         // rope.scaling.finetuned = false switches rope off
  int window_layers = 0;               // the missing window applies only to models of this depth
  bool default_window = true;          // a missing window key means the family's default
  bool sliding_theta_is_base = false;  // freq_base_swa defaults to freq_base
  int parallel = -1;                   // files whose use_parallel_residual is 0 or 1; -1: all
  std::string_view tensor = {};        // files that have this tensor; empty: all
  int wide_scale_layers = 0;           // at this depth attention scale is (H / heads)^-1/2
};

// Latent attention in all layers: where the defaults differ from Deepseek's.
struct LatentRow {
  int64_t q_lora_rank = 1536;            // where the key is absent; 0: none
  std::string_view interleave_key = {};  // a flag, true where it is absent: pairs of the rotation
  bool indexed = false;                  // each layer has an index
};

struct DefaultRow {
  int64_t num_attention_heads = 0;   // 0: the file must say
  int64_t num_key_value_heads = 0;   // 0: as many as query heads
  int64_t head_dim = 0;              // 0: hidden_size / num_attention_heads
  bool head_dim_from_width = false;  // the head_dim key is ignored
  int64_t max_position_embeddings = 2048;
  int64_t intermediate_size = 0;  // 0: the file must say
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  std::string_view activation_key = "hidden_act";  // empty: the activation is fixed
  std::string_view activation = "silu";
  bool tied = false;
};

// Layers of the gated delta rule among those of attention. Defaults of config.json's keys.
struct DeltaRow {
  int64_t num_key_heads = 16;
  int64_t num_value_heads = 32;
  int64_t head_dim = 128;  // of keys and of values
  int64_t conv_kernel = 4;
  int64_t interval = 4;     // every so many layers one of attention, without a list
  bool channels = false;    // a decay for each key dimension; the keys are others
  bool gguf_tiled = false;  // a GGUF file's value heads are in an order of their own
};

// Which layers of a network with experts have one MLP instead.
enum class DenseLayers : uint8_t {
  kNone,
  kLeading,  // the first first_k_dense_replace
  kStep,     // those of mlp_only_layers, and all but every decoder_sparse_step-th
};

// A mixture of experts. Keys that files spell in several ways (count of experts, experts per token,
// groups) are looked for under all of them; here is what differs: defaults and rules.
struct ExpertRow {
  int64_t num_experts = 0;  // defaults
  int64_t num_experts_per_token = 0;
  std::string_view width_key = "moe_intermediate_size";
  int64_t width = 0;
  RouterScore score = RouterScore::kSoftmax;
  BiasRule normalise = {};      // whether weights of the chosen are divided by their sum
  bool gguf_normalise = false;  // the same for a GGUF file without the key
  double normalise_epsilon = 0;
  bool scale = false;  // routed_scaling_factor is read
  double default_scale = 1;
  double jitter = 0;  // default of router_jitter_noise; 0: it is not read
  bool selection_bias = false;
  bool groups = false;              // n_group and topk_group are read
  std::string_view groups_if = {};  // only if topk_method has this value
  int64_t num_groups = 1;           // defaults
  int64_t num_groups_kept = 1;
  GroupScore group_score = GroupScore::kSumOfTwo;
  std::string_view shared_width_key = {};  // width of the shared expert
  int64_t shared_width = 0;
  // Default of n_shared_experts, as wide as an expert each; -1: not read.
  int64_t shared_count = -1;
  bool shared_gate = false;
  DenseLayers dense = DenseLayers::kNone;
  int64_t num_leading = 0;  // default of first_k_dense_replace
  bool biases = false;      // of the router and of the experts
  double swiglu_alpha = 0;  // defaults of the clamped form; a limit of 0: it has none
  double swiglu_limit = 0;
  bool transposed = false;   // stacks in safetensors are [experts, inputs, outputs],
  bool interleaved = false;  // their rows gate, up, gate, up
};

// Layers of short convolution among those of attention. Defaults of config.json's keys.
struct ShortConvRow {
  int64_t num_taps = 3;
  bool adjusts_width = true;  // the MLP is two thirds of the stated width, unless the file says no
};

// State space layers: config.json's keys and their defaults.
struct ScanRow {
  bool hybrid = false;  // some layers are of attention, and all have an MLP
  std::string_view num_heads_key = "num_heads";
  std::string_view head_dim_key = "head_dim";
  int64_t head_dim = 64;  // 0: what the heads have of the inner width
  std::string_view num_groups_key = "n_groups";
  int64_t num_groups = 8;
  std::string_view state_width_key = "state_size";
  int64_t state_width = 128;
  std::string_view num_taps_key = "conv_kernel";
  std::string_view expand_key = "expand";
  std::string_view conv_bias_key = "use_conv_bias";
  std::string_view bias_key = "use_bias";
};

// Layers of several shapes (layer_shapes.h). Defaults of config.json's keys.
struct LayerShapesRow {
  int64_t global_head_dim = 0;  // of full layers
  int64_t hidden_size_per_layer_input = 0;
  int64_t vocab_size_per_layer_input = 0;
  int64_t num_shared = 0;  // last layers that read the keys of earlier ones
};

// Streams beside the residual one (read_streams.h). Defaults of config.json's keys.
struct StreamRow {
  int64_t num_streams = 0;
  int64_t laurel_rank = 0;
  int64_t num_sparse = 0;  // leading layers whose MLP leaves out
  double share = 0;        // so much of its gate
};

// The head that predicts further tokens, where a file has one: before its names in safetensors
// files. Empty: it is a layer behind the last, as it always is in GGUF files.
struct PredictionRow {
  std::string_view prefix = {};        // of its norms and projection
  std::string_view layer_prefix = {};  // of its layer
};

struct Family {
  std::string_view name;
  std::array<std::string_view, 2> model_types = {};  // of config.json
  const BlockForm* block;
  NormKind norm = NormKind::kRms;
  bool norm_weight_plus_one = false;  // safetensors store w, the network multiplies by 1 + w
  QkNorm qk_norm = QkNorm::kNone;
  bool value_norm = false;
  bool layer_scalar = false;
  BiasRule qkv_bias = {};
  BiasRule o_bias = {};
  BiasRule mlp_bias = {};
  DefaultRow defaults = {};
  RopeRow rope = {};
  WindowRow window = {};
  ScaleRow scale = {};
  GgufRow gguf = {};
  bool attention_gate = false;  // q_proj has a gate behind the query of each head
  const DeltaRow* delta = nullptr;
  const LatentRow* latent = nullptr;  // null: no latent attention
  bool qk_norm_flag = false;          // only if use_qk_norm
  bool clip_qkv = false;              // clip_qkv is read
  bool attention_sinks = false;
  const ExpertRow* experts = nullptr;  // null: no layer has any
  FormRow form = {};
  const ShortConvRow* short_conv = nullptr;
  const ScanRow* scan = nullptr;
  const LayerShapesRow* shapes = nullptr;
  const StreamRow* streams = nullptr;         // null: none beside the residual one
  const PredictionRow* prediction = nullptr;  // null: no file has such a head
};

}  // namespace headrace
