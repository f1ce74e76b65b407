// ModelInfo: what a server says of the model that it serves. A value; filled by whoever starts it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace headrace {

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
  int64_t vocab_size = 0;  // rows of the embedding: ids at or above it are refused
  std::string isa;         // "amx", "avx512"
  int num_threads = 0;
  std::string numerics_id;         // of the arithmetic: engine/numerics.h
  std::string system_fingerprint;  // of every response: the numerics id and the weights
};

}  // namespace headrace
