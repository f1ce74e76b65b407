// Forecasts: what a model will take of memory and time on a machine, from headers, measured limits
// and first principles; no weight is read, and the machine need not be this one.
//
// Two forecasts of a step. Its limit is the slower of two: reading what it must read at the
// bandwidth of that working set, and its operations at the peak of each arithmetic; the best that
// the machine allows. What is expected of it follows from what each op reached alone (expected.h),
// and is known where the machine's file has that. `headrace bench step` prints the same two beside
// what it measures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "bench/expected.h"
#include "bench/machine_file.h"
#include "bench/step_work.h"
#include "model/memory_plan.h"
#include "model/weights.h"

namespace headrace {

// Of one step, or of the steps of a prompt.
struct StepForecast {
  double bytes = 0, operations = 0;
  double memory_s = 0;
  double linear_s = 0;  // products with weights
  double mixer_s = 0;   // attention and states
  std::optional<ExpectedStep> expected = {};

  double arithmetic_s() const { return linear_s + mixer_s; }
  double limit_s() const { return memory_s > arithmetic_s() ? memory_s : arithmetic_s(); }
  // Expected; where that is not known, the limit.
  double seconds() const { return expected ? expected->seconds() : limit_s(); }
  std::string_view bound_by() const;  // the limit: "reads", "products" or "attention"
};

struct PlanRequest {
  int64_t context = 1;  // tokens of each client
  int64_t clients = 1;
  int chunk = 512;  // tokens of the largest step
  KvType kv_type = KvType::kF16;
  ActivationArithmetic activations = ActivationArithmetic::kExact;
  size_t memory_bytes = 0;  // that there is
};

// What --kv-type auto is on that machine.
Result<KvType> default_kv_type(const MachineFile& machine);

// What one group of layers keeps.
struct GroupForecast {
  CachePolicy policy = CachePolicy::kFull;
  int64_t window = 0;
  size_t num_layers = 0;
  size_t bytes = 0;  // of a position; of kState, of a sequence
};

// A model in one format, with one type of keys and values, on one machine.
class Forecast {
 public:
  // The checkpoint's headers; `format`: as if its linear weights were stored so (those whose width
  // the blocks of a format do not divide stay as they are). Errors: as the model would be refused.
  // Checkpoint and configuration are not needed afterwards; the machine outlives it.
  static Result<Forecast> create(const Checkpoint& checkpoint, const ModelConfig& config,
                                 const MachineFile& machine, const PlanRequest& request,
                                 std::optional<DType> format = std::nullopt);

  // `batch` sequences at `depth`, one token each.
  StepForecast decode(int64_t batch, int64_t depth) const;
  // A prompt, to its answer's first token.
  StepForecast prefill(int64_t num_tokens) const;
  double decode_tokens_per_s(int64_t batch, int64_t depth) const {
    return static_cast<double>(batch) / decode(batch, depth).seconds();
  }

  const MemoryPlan& memory() const { return memory_; }
  const std::vector<GroupForecast>& groups() const { return groups_; }
  const PlanRequest& request() const { return request_; }

  // With `clients` sequences of `context` tokens each.
  size_t total_bytes(int64_t clients, int64_t context) const;
  bool fits(int64_t clients, int64_t context) const {
    return total_bytes(clients, context) <= request_.memory_bytes;
  }
  int64_t longest_context(int64_t clients) const;  // of the model's, what fits; 0: none
  int64_t most_clients(int64_t context) const;     // at most 2^20
  // The largest power of two that fits and brings a tenth more tokens per second than its half; 1
  // at least.
  int64_t best_batch(int64_t depth) const;

 private:
  explicit Forecast(const MachineFile& machine) : machine_(&machine) {}
  ExpectedTimes expected() const { return {work_, *machine_}; }
  void set_seconds(double working_set, double tokens, double logit_rows, double mixer_operations,
                   double mixer_seconds, StepForecast* step) const;

  PlanRequest request_;
  const MachineFile* machine_;
  StepWork work_;
  MemoryPlan memory_;
  std::vector<GroupForecast> groups_;
  uint32_t isa_ = 0;  // that the kernels of the machine need
  int64_t longest_ = 0;
};

// Price of a million tokens where a machine costs `price_per_hour`.
double price_of_million(double price_per_hour, double tokens_per_s);

}  // namespace headrace
