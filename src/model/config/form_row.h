// What families that are not shaped like Llama do otherwise, as columns of the family table: names
// of tensors and keys, norms with a bias or without a weight, plain MLPs, learned positions,
// distances instead of positions. Constant data; a default is what Llama does.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

enum class Role : uint8_t;

// Whether a projection has a bias: a key of config.json with its default, or fixed (empty key).
struct BiasRule {
  std::string_view key = {};
  bool value = false;
};

// ---- Names --------------------------------------------------------------------------------------

// What safetensors files of a family call the tensors of a role: each part of it, or all in one.
struct NameRow {
  Role role;
  std::array<std::string_view, 3> parts = {};
  std::string_view fused = {};
};

// Prefixes that wrap the tensors of a safetensors checkpoint.
struct NamePrefix {
  std::string_view body;  // before embed_tokens, layers, norm
  std::string_view head;  // before lm_head
};

// Names that differ from those of the role tables. Empty: they do not.
struct TensorNames {
  std::span<const NamePrefix> prefixes = {};  // most common first
  std::string_view layers = {};               // before a layer's number
  std::span<const NameRow> roles = {};
};

// A key of config.json and what this family calls it.
struct KeyAlias {
  std::string_view key, alias;
};
struct KeyNames {
  std::span<const KeyAlias> aliases = {};
  std::array<std::string_view, 2> nested = {};  // objects whose keys count as the file's own
};

// ---- Choices and refusals -----------------------------------------------------------------------

// A key of config.json, 1 and 0 for true and false, and its value where it is absent or null.
struct KeyValue {
  std::string_view key;
  double value;
  double absent;
};
// One line per family of the same model_type, or per key that a family runs with one value of.
using KeyValues = std::array<KeyValue, 4>;

// ---- Forms --------------------------------------------------------------------------------------

// Rows of a fused q, k, v tensor in safetensors files. GGUF converters write kParts.
enum class QkvOrder : uint8_t {
  kParts,       // q, k, v
  kGroups,      // for each key-value head: its queries, its key, its value
  kFourBlocks,  // four times: a quarter of q, of v, of k
};

struct PositionRow {
  bool learned = false;  // a row of a table is added to each embedding
  int offset = 0;        // position 0 has this row of it
};

// Attention without positions: what lies farther back scores less.
struct AlibiRow {
  BiasRule on = {};
  std::string_view max_bias_key = {};
  double max_bias = 8;  // its default
  bool scaled = false;  // the score's scale applies to it as well
};

struct FormRow {
  BiasRule norm_bias = {};
  bool norm_weight = true;        // false: norms multiply by nothing
  bool norm_after_rope = false;   // of q and k
  BiasRule qk_norm = {"", true};  // whether the family's qk_norm is in use
  BiasRule head_bias = {};
  bool plain_mlp = false;  // W_down act(W_up x)
  QkvOrder qkv_order = QkvOrder::kParts;
  PositionRow positions = {};
  bool embedding_norm = false;
  AlibiRow alibi = {};
  int mlp_factor = 0;                     // I where no key says it: a multiple of H; 0: needed
  std::string_view multi_query_key = {};  // one key-value head if it is true, which it is if absent
  bool transposed = false;                // safetensors hold weights as [inputs, outputs]
  TensorNames names = {};
  KeyNames keys = {};
  KeyValues when = {};   // of several rows for a model_type, the first whose keys have these values
  KeyValues needs = {};  // values without which the network would be another: refused
};

}  // namespace headrace
