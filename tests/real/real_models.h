// The real models of the tests, and what was recorded of them. Test-only.
#pragma once

#include <optional>
#include <ostream>
#include <string>

namespace headrace {

struct RealModel {
  const char* stem;       // file name without .gguf, and folder in a model store
  const char* expect;     // recorded results
  const char* tokenizer;  // recorded token ids
  int reference_prompts;  // on the reference unit, without HEADRACE_FULL
  int reference_ids;      // greedy ids after each of them
  int fast_windows;       // perplexity windows on the fast unit
};

inline void PrintTo(const RealModel& model, std::ostream* out) { *out << model.stem; }
std::string name_of(const RealModel& model);  // as a test's name may be

inline constexpr RealModel kModels[] = {
    {"smollm2-135m", "smollm2-135m-q4_1.json", "smollm2.json", 3, 16, 8},
    {"gemma3-270m", "gemma3-270m-q4_k_m.json", "gemma3.json", 3, 12, 4},
    {"qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-q4_k_m.json", "qwen2.5.json", 2, 12, 4},
};

// The file of a model below HEADRACE_TEST_MODELS: STEM.gguf, or any GGUF below a folder whose name
// starts like the stem.
std::optional<std::string> find_model_file(const std::string& stem);

bool wants_everything();  // HEADRACE_FULL=1

std::string golden_file(const std::string& name);

// The first prompts of a file of recorded results, each with its first greedy ids.
std::string beginnings_of(const std::string& expect, int num_prompts, int num_ids);

}  // namespace headrace
