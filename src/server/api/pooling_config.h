// PoolingConfig: what a checkpoint says of the vectors that are made of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/request.h"

namespace headrace {

struct PoolingConfig {
  Pooling pooling = Pooling::kLast;  // decoders that say nothing: only the last row saw everything
  bool is_embedding = false;         // the files say that the model is made for vectors
  bool is_reranker = false;          // the files say that the model judges pairs
  // Why no vector of it would mean anything, though its files describe one: "pooling by weighted
  // mean"; empty: there is no such reason.
  std::string unsupported;

  // Of modules.json and its pooling module (sentence-transformers), or of a GGUF file's
  // pooling_type. kCorrupt names the file.
  static Result<PoolingConfig> read(const Checkpoint& checkpoint);
};

// "mean", "first" or "cls", "last"; nothing for any other.
std::optional<Pooling> pooling_of_name(std::string_view name);

}  // namespace headrace
