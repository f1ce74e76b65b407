// The model that is served: what the server says of it (ModelInfo; filled by whoever starts it),
// and what reading a request needs of it (ServingModel).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/api/bundle.h"

namespace headrace {

class AdapterRegistry;  // adapter_registry.h

// What /v1/models and the page say of the model that is being served.
struct ModelInfo {
  std::string name;                                      // the id in /v1/models
  std::string family;                                    // "llama"
  std::string architecture;                              // "LlamaForCausalLM"
  std::string quantisation;                              // "Q4_K_M", "bfloat16"
  std::vector<std::pair<std::string, int64_t>> formats;  // tensors of each storage format
  std::string file;                                      // file or folder name, without its path
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;
  int64_t vocab_size = 0;   // rows of the embedding: ids at or above it are refused
  int64_t hidden_size = 0;  // values of a vector of a prompt
  std::string isa;          // "amx", "avx512"
  int num_threads = 0;
  std::string numerics_id;         // of the arithmetic: engine/numerics.h
  std::string system_fingerprint;  // of every response: the numerics id and the weights
};

// The referred-to objects outlive every request.
struct ServingModel {
  const TextBundle& text;
  const ModelInfo& info;
  std::span<const std::string> names;  // by which requests may ask for the model; first: its own
  int64_t max_context = 0;
  const AdapterRegistry* adapters =
      nullptr;  // names that requests may ask for beside those; or null
};

}  // namespace headrace
