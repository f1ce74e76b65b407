// Quantisation: what config.json says about quantised weights, and finding a weight by its name.
//
// The tensors of a weight identify themselves: their names, dtypes and shapes give bits, group
// size, symmetry and act-order, and a module that a config excludes (ignore,
// modules_to_not_convert) is simply there as a plain `.weight`. The config is needed for what
// shapes do not tell (method, GPTQ version, packing) and is where unsupported methods are refused
// by name. A plain value.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_view.h"

namespace headrace {

enum class QuantMethod : uint8_t { kNone, kGptq, kAwq, kCompressedTensors, kFp8, kMxfp4 };

struct Quantisation {
  QuantMethod method = QuantMethod::kNone;
  bool zero_is_stored_minus_one = true;  // GPTQ: checkpoint_format is not gptq_v2
  int64_t block_outputs = 128;           // fp8: weight_block_size
  int64_t block_inputs = 128;
  std::vector<int64_t> group_sizes = {};  // that the config names; 0 or less: one group
};

// Reads quantization_config (or compression_config) of config.json, also under text_config; without
// one, quantize_config.json of old GPTQ checkpoints. kNone for GGUF and for plain checkpoints.
// kUnsupported names the method, format or field at fault and what is supported.
Result<Quantisation> read_quantisation(const Checkpoint& checkpoint);

// The linear weight `base_name` (without ".weight") in whatever layout it has, validated. GGUF:
// NAME.weight and, if there, NAME.scale. kNotFound names what was looked for.
Result<WeightView> find_weight(const Checkpoint& checkpoint, const Quantisation& quantisation,
                               std::string_view base_name);

// Expert `expert` of a stack [experts, N, K]: NAME_blocks and NAME_scales (MXFP4), NAME.weight or
// NAME (plain), GGUF with NAME.scale for all or one per expert.
Result<WeightView> find_expert_weight(const Checkpoint& checkpoint,
                                      const Quantisation& quantisation, std::string_view base_name,
                                      int64_t expert);

}  // namespace headrace
