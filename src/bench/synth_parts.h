// What the GGUF files of an architecture hold: tensors of its layers and keys, as rows. Sizes are
// functions of the shape and the layer. Constant data, for the files that write random models.
#pragma once

#include <span>
#include <string_view>

#include "bench/synth.h"

namespace headrace {

using SynthSize = int64_t (*)(const SynthShape& shape, int64_t layer);

// Which type of a format a matrix is stored in.
enum class SynthUse : uint8_t {
  kMain,
  kBetter,  // the better one in some layers
  kExpert,  // main, where the rest of the network may have another
  kExpertBetter,
  kExact,  // float32
};

// inputs null: a vector (of `outputs` for each expert, where there are any).
struct SynthTensorRow {
  std::string_view name;  // after "blk.N."
  SynthSize outputs;
  SynthSize inputs = nullptr;
  SynthUse use = SynthUse::kMain;
  SynthFill fill = SynthFill::kOnes;  // of vectors
  SynthSize experts = nullptr;
};

// Tensors that a layer has, if it has this part at all.
struct SynthPart {
  std::span<const SynthTensorRow> rows;
  bool (*in_layer)(const SynthShape& shape, int64_t layer) = nullptr;  // null: in each
};

enum class SynthKeyKind : uint8_t { kCount, kNumber, kFlag, kText, kCounts, kFlags };

// A key after "ARCHITECTURE."; kCounts and kFlags are lists with an entry for each layer. It takes
// the place of a common row of the same name.
struct SynthKeyRow {
  std::string_view name;
  SynthKeyKind kind;
  double (*value)(const SynthShape& shape, int64_t layer) = nullptr;
  std::string_view text = {};
  int64_t num_entries = 0;  // of a list that has not one for each layer
};

struct SynthArchitecture {
  std::string_view name;
  std::string_view tokenizer_pre = "llama-bpe";
  std::string_view final_norm = "output_norm.weight";
  std::span<const SynthPart> parts;           // of a layer, in file order
  std::span<const SynthTensorRow> ends = {};  // beside embedding, final norm and head
  std::span<const SynthKeyRow> keys = {};
};

// Null if there is no such architecture.
const SynthArchitecture* find_synth_architecture(std::string_view name);
// What every architecture has.
std::span<const SynthKeyRow> common_synth_keys();

}  // namespace headrace
