// Reading of adapters: the tensors of a file, checked against the model they are for.
#pragma once

#include "model/adapter.h"
#include "model/config/config.h"
#include "model/weights.h"

namespace headrace {

// See Model::load_adapter.
Result<std::unique_ptr<const Adapter>> read_adapter(const AdapterFiles& files,
                                                    const ModelConfig& config,
                                                    const Weights& weights, Backend& backend);

}  // namespace headrace
