// pooled: what is asked of a prompt as a whole, a vector or the log-probs of labels, and what comes
// back, in no client's language. A dialect parses a body to a ParsedPooled and renders the outputs;
// PoolSession (pool_session.h) does the rest.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/api/answer_id.h"
#include "server/api/dialect.h"
#include "server/api/generation.h"
#include "server/api/json_writer.h"
#include "server/api/prompt.h"

namespace headrace {

// Texts of one request.
inline constexpr size_t kMaxEmbeddingInputs = 2048;

// What one prompt gave.
struct PooledOutput {
  std::vector<float> embedding;       // of a request with pooling: [hidden_size], not normalised
  std::vector<float> label_logprobs;  // of a request with labels
};

// Writes one answer. One per answer; one thread at a time.
class PooledRenderer {
 public:
  virtual ~PooledRenderer() = default;
  virtual const Dialect& dialect() const = 0;
  virtual const std::string& id() const = 0;  // for the log: "embd-..."
  // Of each prompt, in their order.
  virtual void add(size_t prompt_idx, PooledOutput output, JsonWriter& json) = 0;
  virtual void end(const AnswerEnd& end, JsonWriter& json) = 0;
};

struct ParsedPooled {
  // prototype has pooling and max_tokens 0, or labels and max_tokens 1. No streams, one choice.
  GenerationRequest request;
  PromptSource prompts;
  std::unique_ptr<PooledRenderer> renderer;
  size_t bytes_per_prompt = 0;  // that the answer holds and writes, estimated from above
};
using ParsePooled =
    std::function<Result<ParsedPooled>(const boost::json::object& body, const ServingModel& model)>;

// Makes the request one for a vector. kUnsupported where the checkpoint's files describe a vector
// that is not made of its states alone.
Status want_embedding(const ServingModel& model, GenerationRequest& request);

// The first `dimensions` (0: all), scaled to length 1; a vector of zeros stays.
std::vector<float> unit_vector(std::vector<float> vector, int64_t dimensions = 0);
// Of vectors of length 1: their cosine.
double dot(std::span<const float> a, std::span<const float> b);
// Little-endian float32.
std::string base64_of(std::span<const float> vector);

}  // namespace headrace
