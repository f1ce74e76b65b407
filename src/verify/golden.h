// Verification against recorded results of a reference implementation ("golden" folders).
//
// A folder holds a checkpoint (config.json, model.safetensors, or a GGUF file), expect.json
// (prompts with ids, the positions whose logits are recorded, greedy ids, max_abs_logit) and
// expect.safetensors (promptN.logits, promptN.hidden_states, dequantised.NAME). Everything but the
// checkpoint and one kind of expectation may be missing. A folder with adapter_config.json holds an
// adapter instead; expect.json names the folder of its checkpoint ("base"), in ../../tiny or beside
// it. Used by the command line and by tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"

namespace headrace {

struct GoldenPrompt {
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;  // of the recorded logits, ascending
  std::vector<int32_t> greedy;     // ids that follow the prompt
  TensorView logits;               // [positions, vocab_size] float32; empty: not recorded
  TensorView hidden;               // [num_layers + 1, ids, hidden_size]; empty: not recorded
};

struct Golden {
  std::string folder;
  std::string base;  // of an adapter: the checkpoint's folder; else empty
  double max_abs_logit = 0;
  std::vector<GoldenPrompt> prompts;
  std::unique_ptr<Checkpoint> expected;  // owns what the views show; null: only greedy ids
};

struct GoldenReport {
  std::string folder;
  bool passed = false;
  double max_difference = 0;   // of logits, over all prompts
  double tolerance_share = 0;  // of the largest logit: kGoldenTolerance, or the network's own
  double tolerance = 0;        // tolerance_share * max_abs_logit
  bool greedy_equal = true;
  std::string error;  // why not passed: the first reason, with numbers
  int prompts = 0;    // checked
  int positions = 0;  // rows of logits checked
};

// Share of the largest logit by which float32 arithmetic may differ; ten times that of networks
// whose reference is itself so far from float64 (the gated delta rule).
inline constexpr double kGoldenTolerance = 2e-4;

// kNotFound, kCorrupt or kInvalidArgument name the file and what is wrong.
Result<Golden> read_golden(const std::string& folder);

// Runs every prompt of `golden` on `checkpoint`. An error means that the checkpoint cannot be
// loaded (an unknown family, say); differences are in the report. Allocates a model; engine thread.
Result<GoldenReport> verify_golden(const Golden& golden, const Checkpoint& checkpoint,
                                   Backend& backend, const ModelOptions& options = {});

// The whole folder. Where it holds the same configuration in two generations (config.v5.json),
// both must give the same bits.
Result<GoldenReport> verify_golden_folder(const std::string& folder, Backend& backend,
                                          const ModelOptions& options = {});

// The same for a folder that holds an adapter, on the checkpoint that it was made for in whatever
// format.
Result<GoldenReport> verify_golden_adapter(const Golden& golden, const Checkpoint& checkpoint,
                                           Backend& backend, const ModelOptions& options = {});

// `base` with another text in place of one file beside the weights. `base` outlives the result.
std::unique_ptr<Checkpoint> with_sidecar(const Checkpoint& base, std::string file_name,
                                         std::string text);

// The checkpoint of a folder: safetensors, or the one GGUF file in it.
Result<std::unique_ptr<Checkpoint>> open_folder(const std::string& folder);

}  // namespace headrace
