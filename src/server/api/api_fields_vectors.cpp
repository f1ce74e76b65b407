// Fields of /v1/embeddings, /v1/rerank and /v1/score.
#include "server/api/api_fields.h"

namespace headrace {
namespace {

using enum FieldUse;

constexpr uint64_t kJudging = kInRerank | kInScore;
constexpr uint64_t kVectorPlaces = kInEmbedding | kJudging;

// Sources: the published OpenAI, Cohere and Jina APIs, and vLLM's extensions.
// clang-format off
constexpr FieldRow kVectorRows[] = {
    {"model", kServed, kVectorPlaces, "", "the model's name or an alias; absent: the model that is served"},
    {"input", kServed, kInEmbedding, "", "text, list of texts, token ids or list of lists of ids; at most 2,048"},
    {"encoding_format", kServed, kInEmbedding, "", "\"float\" or \"base64\" (little-endian float32)"},
    {"dimensions", kServed, kInEmbedding, "", "the first so many values, scaled to length 1 again"},
    {"normalize", kServed, kInEmbedding, "", "default true: vectors of length 1"},
    {"add_special_tokens", kServed, kInEmbedding, "", "default true"},
    {"query", kServed, kInRerank, "", "a text"},
    {"documents", kServed, kJudging, "", "texts, or objects with text; at most 2,048"},
    {"top_n", kServed, kInRerank, "", "the best so many; 0: all"},
    {"return_documents", kServed, kInRerank, "", "default true"},
    {"text_1", kServed, kInScore, "", "a text, or as many as in text_2"},
    {"text_2", kServed, kInScore, "", "a text or a list"},
    {"queries", kServed, kInScore, "", "as text_1, with documents"},
    {"method", kServed, kJudging, "", "\"yes_no\": the odds of the model's answer; \"embedding\": the cosine of the vectors; default: the first for models made for it"},
    {"instruction", kServed, kJudging, "", "the task, for yes_no"},
    {"truncate_prompt_tokens", kServed, kVectorPlaces, "", "longer prompts are cut to their first so many tokens; -1: to the context"},
    {"cache_salt", kServed, kVectorPlaces, "", "1 to 256 bytes: prompts share cached work only with prompts of the same salt and API key"},
    {"messages", kRefused, kVectorPlaces, "[]", "send text"},
    {"activation", kRefused, kVectorPlaces, "[true]", "scores are always between 0 and 1, or a cosine"},
    {"softmax", kRefused, kVectorPlaces, "[true]", "scores are always between 0 and 1, or a cosine"},
    {"use_activation", kRefused, kVectorPlaces, "[true]", "scores are always between 0 and 1, or a cosine"},
    {"embed_dtype", kRefused, kInEmbedding, "[\"float32\"]", "vectors are float32"},
    {"endianness", kRefused, kInEmbedding, "[\"native\", \"little\"]", "vectors are little-endian"},
    {"prompt_name", kRefused, kVectorPlaces, "", "put the prompt into the text"},
    {"input_type", kRefused, kVectorPlaces, "", "put the prompt into the text"},
    {"task", kRefused, kVectorPlaces, "", "put the prompt into the text"},
    {"truncate", kRefused, kVectorPlaces, "[false, \"NONE\"]", "use truncate_prompt_tokens"},
    {"truncation", kRefused, kVectorPlaces, "[false]", "use truncate_prompt_tokens"},
    {"late_chunking", kRefused, kVectorPlaces, "[false]", "leave it out"},
    {"rank_fields", kRefused, kJudging, "[]", "send texts"},
    {"max_chunks_per_doc", kRefused, kJudging, "", "use truncate_prompt_tokens"},
    {"max_tokens_per_doc", kRefused, kJudging, "", "use truncate_prompt_tokens"},
    {"mm_processor_kwargs", kRefused, kVectorPlaces, "[{}]", "this model reads text only"},
    {"user", kHarmless, kVectorPlaces, "", ""},
    {"request_id", kHarmless, kVectorPlaces, "", ""},
    {"metadata", kHarmless, kVectorPlaces, "", ""},
};
// clang-format on

}  // namespace

std::span<const FieldRow> vector_field_rows() { return kVectorRows; }

}  // namespace headrace
