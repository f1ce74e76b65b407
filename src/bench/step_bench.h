// StepBench: times steps of a loaded model, without tokenizer, sampler, engine or server.
//
// Contexts: the first positions are computed from a fixed prompt; deeper ones are copies of those
// blocks (speed does not depend on what a key holds), so that a depth of 8192 costs no minutes.
// Each sequence of a batch has KV blocks of its own. Token ids are fixed, so that two runs of a
// point give the same logits bit for bit; their digest is returned and compared by the caller.
// One thread; the model serves nobody else meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/whole_tables.h"

namespace headrace {

struct StepTiming {
  double seconds = 0;
  int64_t num_steps = 0;
  int64_t num_joins = 0;  // of the back end's threads, in all steps
  uint64_t digest = 0;    // of the last step's logits
  bool finite = true;     // all of them
};

class StepBench {
 public:
  struct Room {
    int64_t single_tokens = 0;  // of the longest sequence alone
    int64_t batch_tokens = 0;   // of each sequence of a batch
    int max_sequences = 1;
  };

  // kExhausted when keys and values do not fit in memory.
  static Result<StepBench> create(Model& model, Backend& backend, const Room& room);

  // Computes num_tokens and copies their blocks over all others. Before anything is timed.
  void fill_contexts(int64_t num_tokens);
  // A prompt of num_tokens in chunks of the model's batch size; logits of the last token only.
  StepTiming prefill(int64_t num_tokens);
  // num_steps steps of one token from position `depth` on. Each but the last asks for its best
  // token only, as greedy decoding does; the last for its logits.
  StepTiming decode(int64_t depth, int64_t num_steps);
  // The same for num_sequences sequences in each step.
  StepTiming decode_batch(int num_sequences, int64_t depth, int64_t num_steps);

  // From now on sequence s has adapters[s % their number]; none: the model alone. They outlive it.
  void use_adapters(std::span<const PackedAdapter* const> adapters) { adapters_ = adapters; }

  size_t kv_bytes() const { return store_.num_bytes(); }

 private:
  StepBench(Model& model, Backend& backend, KvStore store, DeviceMemory logits, const Room& room);
  const PackedAdapter* adapter_of(size_t sequence) const {
    return adapters_.empty() ? nullptr : adapters_[sequence % adapters_.size()];
  }
  enum class Wanted { kNothing, kBest, kLogits };  // of the rows listed
  void forward(std::vector<Span>& spans, std::span<const int32_t> rows, Wanted wanted);
  // Times work() (its steps are counted by forward) and looks at the logits it left.
  template <typename F>
  StepTiming time(size_t num_logit_rows, const F& work);

  Model* model_;
  Backend* backend_;
  KvStore store_;
  WholeTables single_tables_;              // of the sequence alone
  std::vector<WholeTables> batch_tables_;  // [max_sequences]
  std::vector<int32_t> token_ids_;         // a fixed text, as long as the longest step
  int64_t num_steps_ = 0;                  // since creation
  DeviceMemory logits_;
  std::vector<BestOutput> best_;
  std::span<const PackedAdapter* const> adapters_;
};

}  // namespace headrace
