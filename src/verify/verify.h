// What is verified, a row for each item: folders of tiny checkpoints, tokenizers, templates, whole
// models against recorded results, kernels against float64. `headrace verify` prints the rows.
//
// A failed item is a row; an error means that nothing could be run at all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/registry.h"
#include "backend/cpu/verify/problem.h"
#include "base/result.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace headrace {

struct VerifyRow {
  std::string item;  // folder, text, prompt or kernel
  bool passed = false;
  std::string details;  // figures: largest difference, tolerance, counts, or the error
};
using VerifyRows = std::vector<VerifyRow>;

// A file that was read: its path is for messages.
struct ReadFile {
  std::string path, text;
};

// A golden folder (verify/golden.h). tolerance: share of the largest logit; 0: kGoldenTolerance.
VerifyRow golden_row(const std::string& folder, Backend& backend, const ModelOptions& options,
                     double tolerance);

// {"cases": [{"text", "ids", "ids_with_special"?, "decoded"?}]}. kCorrupt names the file.
Result<VerifyRows> tokenizer_rows(const Tokenizer& tokenizer, const ReadFile& recorded);

// {"template", "special_tokens", "now", "rendered": {NAME: {"text"} or {}}}, with the conversations
// by name in conversations.json beside it. What the reference refuses must be refused.
Result<VerifyRows> template_rows(const ReadFile& recorded);

struct ModelRecord {
  ReadFile expect;                  // {"prompts": [...], "perplexity"?: {...}}
  std::optional<std::string> text;  // of the perplexity; none: not measured
  int64_t max_windows = 0;          // 0: all that are recorded
};
// Greedy ids, log-probs and perplexity. kCorrupt, or kUnprocessable for a record whose ids or
// lengths this model cannot have, name the file and what is wrong.
Result<VerifyRows> model_rows(Model& model, Backend& backend, const Tokenizer& tokenizer,
                              const ModelRecord& record);

// Each row of the units that a processor with these IsaBits can run.
VerifyRows kernel_rows(std::span<const cpu::KernelUnit* const> units, uint32_t available,
                       cpu::Depth depth);

}  // namespace headrace
