// Each of the published templates names its formats.

#include "server/api/parts/output_format.h"

#include <gtest/gtest.h>

#include "text/test_support.h"

namespace headrace {
namespace output_format_test {

struct TemplateRow {
  const char* name;
  std::string_view tools, reasoning;  // "": none
};

constexpr TemplateRow kTemplates[] = {
    {"Apertus-8B-Instruct", "apertus", "apertus"},
    {"Apriel-1.6-15b-Thinker-fixed", "apriel", "apriel"},
    {"Bielik-11B-v3.0-Instruct", "hermes", "think"},
    {"ByteDance-Seed-OSS", "seed_oss", "seed"},
    {"CohereForAI-c4ai-command-r-plus-tool_use", "command_r", ""},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command_r7b", "command_r7b"},
    {"GLM-4.6", "glm", "think"},
    {"GigaChat3-10B-A1.8B", "gigachat", ""},
    {"HuggingFaceTB-SmolLM3-3B", "", "think"},
    {"Kimi-K2-Instruct", "kimi_k2", ""},
    {"Kimi-K2-Thinking", "kimi_k2", "think"},
    {"MiMo-VL", "hermes", ""},
    {"MiniMax-M1", "minimax_m1", ""},
    {"MiniMax-M2", "minimax_m2", "think"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", ""},
    {"NVIDIA-Nemotron-Nano-v2", "nemotron", "think"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", ""},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", ""},
    {"Qwen-QwQ-32B", "hermes", "think"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", ""},
    {"Qwen-Qwen3-0.6B", "hermes", "think"},
    {"Qwen3-Coder", "qwen3_coder", ""},
    {"Reka-Edge", "hermes", "think"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", "think"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "think"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "think"},
    {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32", "think"},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek_v4", "think"},
    {"fireworks-ai-llama-3-firefunction-v2", "firefunction", ""},
    {"google-gemma-2-2b-it", "", ""},
    {"google-gemma-4-31B-it", "gemma4", "gemma4"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", "granite"},
    {"ibm-granite-granite-4.0", "hermes", ""},
    {"inclusionai-ling-3.0-flash", "glm", "think"},
    {"llama-cpp-deepseek-r1", "deepseek_v3", "think"},
    {"llama-cpp-rwkv-world", "", "think"},
    {"meetkai-functionary-medium-v3.1", "functionary", ""},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3", ""},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3", ""},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3", ""},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral_json", ""},
    {"moonshotai-Kimi-K2", "kimi_k2", ""},
    {"openai-gpt-oss-120b", "harmony", "harmony"},
    {"openbmb-MiniCPM5-1B", "minicpm5", "think"},
    {"poolside-Laguna-XS-2.1", "glm", "think"},
    {"poolside-Laguna-XS.2", "glm", "think"},
    {"unsloth-mistral-Devstral-Small-2507", "mistral", ""},
    {"upstage-Solar-Open-100B", "solar", "solar"},
};

TEST(OutputFormatTest, TemplatesNameTheirFormats) {
  for (const TemplateRow& row : kTemplates) {
    const auto source =
        test::template_of(test::recorded("templates/" + std::string(row.name) + ".json"));
    if (!source) GTEST_SKIP() << "set HEADRACE_TEST_TEMPLATES";
    const ToolFormat* tools = find_tool_format(*source, "");
    const ReasoningFormat* reasoning = find_reasoning_format(*source);
    EXPECT_EQ(tools == nullptr ? "" : tools->name, row.tools) << row.name;
    EXPECT_EQ(reasoning == nullptr ? "" : reasoning->name, row.reasoning) << row.name;
  }
}

TEST(OutputFormatTest, TheVocabularyTellsWhatTheTemplateDoesNot) {
  EXPECT_EQ(find_tool_format("plain", ""), nullptr);
  EXPECT_EQ(find_tool_format("plain", "[\"<s>\",\"<|tool_call_start|>\"]")->name, "lfm2");
}

}  // namespace output_format_test
}  // namespace headrace
