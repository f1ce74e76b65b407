// ModelConfig: a network described by data. Fields carry Hugging Face names.
//
// A family (families.cpp) is a row that says how to fill this from config.json or GGUF keys and
// where the tensors are; decoder.cpp reads only what is here.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "model/config/form_row.h"

namespace headrace {

enum class RopeType : uint8_t {
  kDefault,
  kLinear,
  kDynamic,
  kLlama3,
  kYarn,
  kLongrope,
  kProportional,  // of the pairs of a whole head, the first turn
};

// Section 6 of the families note: angle(p, i) = p * f_i; cos and sin are multiplied by
// attention_factor.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  RopePairing pairing = RopePairing::kHalf;
  int rope_dims = 0;  // rotated width r
  double rope_theta = 1e4;
  double factor = 1.0;
  double attention_factor = 1.0;
  double mscale_all_dim = 0;  // yarn: latent attention's scale grows with it
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn
  int64_t original_max_position_embeddings = 0;          // llama3, yarn, longrope
  int64_t max_position_embeddings = 0;                   // dynamic
  int rotated_pairs = 0;                                 // proportional
  std::vector<float> short_factor, long_factor;          // longrope
  std::vector<float> frequency_divisor;                  // GGUF rope_freqs: f_i is divided by it
};

enum class MixerKind : uint8_t {
  kAttention,
  kGatedDelta,
  kChannelDelta,
  kLatent,
  kShortConv,
  kScan
};
enum class MlpKind : uint8_t {
  kDense,
  kPlain,  // without a gate
  kExperts,
  kNone,
  kDenseAndExperts,  // side by side, each with norms of its own
  kSparse,           // gated; the gate keeps what stands out
};

// Biases: safetensors files follow their configuration, GGUF files simply have them or not.
enum class Presence : uint8_t { kAbsent, kRequired, kIfPresent };

// Latent attention: keys and values of all heads are made of one vector per position, which is what
// the cache keeps, and a rotated part that all heads share.
struct LatentConfig {
  int q_lora_rank = 0;  // 0: queries are projected at once
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;  // rotated if the layer has a rope
  int v_head_dim = 0;
  // Of the index that chooses the positions a token attends to; 0 heads: none.
  int index_n_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;

  int qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  int width() const { return kv_lora_rank + qk_rope_head_dim; }  // of what the cache keeps
};
inline constexpr float kLatentNormEps = 1e-6f;  // of the norms inside, whatever the network's is

// A mixture of experts: how a token's experts are chosen and weighted, and what each computes.
struct ExpertConfig {
  int num_experts = 0;
  int num_experts_per_token = 0;
  int64_t intermediate_size = 0;  // of one expert
  RouterScore score = RouterScore::kSoftmax;
  bool selection_bias = false;  // chosen by score + bias, weighted by the score alone
  // Experts are chosen from the best num_groups_kept of num_groups runs of equal length.
  int num_groups = 1;
  int num_groups_kept = 1;
  GroupScore group_score = GroupScore::kSumOfTwo;
  bool normalise = false;          // weights of the chosen are divided by their sum
  float normalise_epsilon = 0.0f;  // plus this
  float scale = 1.0f;              // and multiplied by this
  float jitter = 0.0f;             // of RouterScore::kSparseMixer
  // With a limit, an expert is W_down((u + 1) g sigmoid(alpha g)), g = min(gate, limit) and
  // u = up within the limit on both sides; without, the network's gated MLP.
  float swiglu_alpha = 0.0f;
  float swiglu_limit = 0.0f;
  int64_t shared_intermediate_size = 0;  // of the expert that every token has; 0: none
  bool shared_gate = false;              // its result is multiplied by a gate of its own
};

// The gated delta rule, with a decay for each head or (kChannelDelta) each key dimension: heads
// with a state [key_head_dim, value_head_dim] each, behind a causal convolution of their queries,
// keys and values.
struct DeltaConfig {
  int num_key_heads = 0;
  int num_value_heads = 0;  // a multiple of the key heads
  int key_head_dim = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;       // tokens that the convolution sees, the current one included
  bool tiled_heads = false;  // value head h is served by key head h modulo their number
};

// A causal convolution of each channel of the hidden width, between two gates.
struct ShortConvConfig {
  int num_taps = 0;  // tokens that it sees, the current one included
};

// A state space layer: heads with a state [head_dim, state_width] each, behind a causal convolution
// of their inputs and of the B and C that the heads of a group share.
struct ScanConfig {
  int num_heads = 0;
  int head_dim = 0;
  int num_groups = 0;
  int state_width = 0;
  int num_taps = 0;
  float time_step_min = 0.0f;
  float time_step_max = std::numeric_limits<float>::infinity();

  int64_t inner_size() const { return int64_t{num_heads} * head_dim; }
  int64_t num_channels() const { return inner_size() + int64_t{2} * num_groups * state_width; }
  int64_t projection_width() const { return inner_size() + num_channels() + num_heads; }
};

// Weights that the file holds as [inputs, outputs].
enum class Transposed : uint8_t { kNone, kExperts, kLayers };

// What may differ from layer to layer. A value belongs to kinds of mixers or MLPs (roles.cpp says
// to which); set in a layer of another kind, check_config refuses it.
struct LayerConfig {
  MixerKind mixer = MixerKind::kAttention;
  MlpKind mlp = MlpKind::kDense;

  // Attention.
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  int head_dim = 0;
  int64_t sliding_window = 0;  // 0: full attention
  int rope_idx = -1;           // into ModelConfig::ropes; -1: no rope in this layer
  float attention_scale = 1.0f;
  float attention_softcap = 0.0f;
  QkNorm qk_norm = QkNorm::kNone;
  bool attention_sinks = false;
  // A sigmoid of further outputs of the projection multiplies the result.
  bool attention_gate = false;
  bool value_norm = false;       // values are normed per head, without a weight
  bool values_are_keys = false;  // no projection of values: what k is before its norm and rope
  float qkv_clip = 0.0f;         // queries, keys and values are within it before rope; 0: off
  int kv_source_layer = -1;      // the earlier layer whose keys and values it reads; -1: its own

  LatentConfig latent;

  // Dense MLP, alone or beside experts.
  int64_t intermediate_size = 0;
  Xielu xielu;  // of Activation::kXielu
  // Of a sparse MLP's gate what is not so many standard deviations above its mean is left out.
  float gate_deviations = 0.0f;

  ExpertConfig experts;
  DeltaConfig delta;
  ShortConvConfig short_conv;
  ScanConfig scan;
};

// Takes what belongs to attention out of a layer that has another mixer.
void clear_attention(LayerConfig* layer);

struct ModelConfig {
  std::string family;        // row of the family table: "llama"
  std::string architecture;  // as the file says it: "LlamaForCausalLM", "llama"
  std::string source_dtype;  // "bfloat16", or the GGUF file type
  int64_t vocab_size = 0;    // rows of the embedding
  int64_t hidden_size = 0;
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  std::vector<LayerConfig> layers;
  std::vector<RopeConfig> ropes;
  // The layer of the head that predicts further tokens (read_prediction.h), or none.
  std::vector<LayerConfig> prediction;
  int num_nextn_predict_layers = 0;  // as the file says, which may lack them all the same
  // Of the network that such a head is: tokens come with the states of the positions before them.
  bool joins_states = false;

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-6f;
  bool norm_weight_plus_one = false;  // the file stores w, the network uses 1 + w
  bool norm_weight = true;            // false: norms multiply by nothing
  bool norm_bias = false;
  bool qk_norm_after_rope = false;
  bool embedding_norm = false;     // of the embedded tokens, before the layers
  bool learned_positions = false;  // row position + position_offset of a table is added to them
  int position_offset = 0;
  // Attention's scores fall with the distance, ever slower from head to head, by a slope of up to
  // 2^(-alibi_max_bias / heads) times this; 0: they do not.
  float alibi_max_bias = 0.0f;
  float alibi_scale = 1.0f;
  Presence head_bias = Presence::kAbsent;
  QkvOrder qkv_order = QkvOrder::kParts;
  Presence qkv_bias = Presence::kAbsent;
  Presence o_bias = Presence::kAbsent;
  Presence mlp_bias = Presence::kAbsent;
  Presence router_bias = Presence::kAbsent;
  Presence conv_bias = Presence::kAbsent;   // of a mixer's convolution,
  Presence mixer_bias = Presence::kAbsent;  // and of its projections
  Presence expert_bias = Presence::kAbsent;
  bool permuted_qk = false;                   // the file's q and k rows are in a converter's order
  Transposed transposed = Transposed::kNone;  // plain ones; quantised layouts say it themselves
  bool interleaved_experts = false;           // rows of fused stacks are gate, up, gate, up
  Activation activation = Activation::kSilu;
  // x += N(A(N x)); x += N(M(N x)): which of the four norms exist, and the parallel form.
  bool pre_norms = true;
  bool post_norms = false;
  bool parallel_block = false;

  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;
  float logit_scale = 1.0f;  // multiplies
  float logit_softcap = 0.0f;
  bool layer_scalar = false;  // each layer may multiply the stream in the end
  // Numbers that each layer gets of the token itself, from a table of their own; 0: none.
  int64_t hidden_size_per_layer_input = 0;
  int64_t vocab_size_per_layer_input = 0;  // rows of that table
  // The residual stream and those beside it, which each layer predicts and corrects; 1: it alone.
  int num_streams = 1;
  int laurel_rank = 0;        // with streams: of the branch beside attention
  bool stream_scale = false;  // the corrected stream is scaled before the layer's input uses it
  // ministral3: q *= 1 + beta * ln(1 + floor(position / original)); 0: off
  float query_position_beta = 0.0f;
  int64_t query_position_original = 0;

  std::vector<int32_t> eos_token_ids;  // from the configuration; the file's tokenizer may add more
  int32_t bos_token_id = -1;

  int num_layers() const { return static_cast<int>(layers.size()); }
  // Of the weights: that of the head is the one after the last.
  const LayerConfig& weight_layer(int layer_idx) const {
    return layer_idx < num_layers() ? layers[static_cast<size_t>(layer_idx)]
                                    : prediction[static_cast<size_t>(layer_idx - num_layers())];
  }
};

// Experts of the layers before this one: where a layer's are among those of all.
int64_t num_experts_before(const ModelConfig& config, int layer_idx);

// "silu", "gelu_pytorch_tanh" and their other spellings; kUnsupported names others.
Result<Activation> activation_named(std::string_view name);

}  // namespace headrace
