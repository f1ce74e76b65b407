// The head that predicts further tokens (multi-token prediction, "nextn"): whether a file has it.
//
// A layer of the network's own kind behind a projection that joins a token with the state of the
// position before it; embedding and output matrix are those of the network. At a position the head
// has what the network made of it and the token that came next, and says the one after that. Of
// several such layers the first is used, again and again (docs/adr/0094-prediction-heads.md).
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/config/config.h"

namespace headrace {

// Fills ModelConfig::prediction where the file has the head's projection. For config_json.cpp and
// config_gguf.cpp, when all else is read.
void read_prediction(const Checkpoint& checkpoint, ModelConfig* config);

// Before the names of its norms and projection, or (of_layer) of its layer's weights. body: before
// those of the network.
std::string prediction_prefix(CheckpointKind kind, const ModelConfig& config, std::string_view body,
                              bool of_layer);

ModelConfig without_prediction(ModelConfig config);
// The head as a network: its layer between the projection and its norm.
ModelConfig prediction_network(const ModelConfig& config);

}  // namespace headrace
