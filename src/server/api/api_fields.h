// api_fields: the table of fields that request bodies may hold, route by route; docs/api-fields.md
// is this table.
//
// The rule: a field that would change the answer is obeyed or refused, never dropped in silence. A
// field that this table does not know is accepted, because clients send many, and named in the
// answer's x-headrace-ignored header, with the field that was probably meant if one is close.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/http.h"

namespace headrace {

inline constexpr std::string_view kIgnoredHeader = "x-headrace-ignored";

enum class FieldUse : uint8_t {
  kServed,    // read and obeyed
  kHarmless,  // accepted: it cannot change the answer
  kRefused,   // not served: a 400 that names it, unless its value asks for nothing
};

// Which bodies, as bits: one row may stand for several.
enum FieldPlace : uint64_t {
  kInChat = 1,                       // /v1/chat/completions
  kInCompletion = 2,                 // /v1/completions
  kInTokenize = 4,                   // /tokenize
  kInDetokenize = 8,                 // /detokenize
  kInStreamOptions = 16,             // stream_options
  kInFormat = 32,                    // response_format
  kInMessage = 64,                   // messages[]
  kInPart = 128,                     // messages[].content[]
  kInTool = 256,                     // tools[]
  kInFunction = 512,                 // tools[].function
  kInResponses = 1 << 10,            // /v1/responses
  kInResponseItem = 1 << 11,         // its input[]
  kInResponsePart = 1 << 12,         // its input[].content[]
  kInResponseTool = 1 << 13,         // its tools[]
  kInResponseText = 1 << 14,         // its text
  kInResponseFormat = 1 << 15,       // its text.format
  kInResponseReasoning = 1 << 16,    // its reasoning
  kInResponseStream = 1 << 17,       // its stream_options
  kInRender = 1 << 18,               // /render
  kInEmbedding = uint64_t{1} << 48,  // /v1/embeddings
  kInRerank = uint64_t{1} << 49,     // /v1/rerank
  kInScore = uint64_t{1} << 50,      // /v1/score
  // Anthropic's dialect.
  kInBlockMessages = uint64_t{1} << 24,  // /v1/messages
  kInMessageCount = uint64_t{1} << 25,   // /v1/messages/count_tokens
  kInBlockMessage = uint64_t{1} << 26,   // messages[] of these
  kInBlock = uint64_t{1} << 27,          // messages[].content[], system[]
  kInBlockTool = uint64_t{1} << 28,      // tools[]
  kInThinking = uint64_t{1} << 29,       // thinking
  kInOutputConfig = uint64_t{1} << 30,   // output_config
  // Ollama's.
  kInOllamaChat = uint64_t{1} << 31,      // /api/chat
  kInOllamaGenerate = uint64_t{1} << 32,  // /api/generate
  kInOllamaEmbed = uint64_t{1} << 33,     // /api/embed
  kInOllamaOptions = uint64_t{1} << 34,   // options
  kInOllamaMessage = uint64_t{1} << 35,   // messages[] of /api/chat
  kInOllamaModel = uint64_t{1} << 36,     // /api/show, /api/pull, /api/delete
  // llama.cpp's.
  kInLlamaCompletion = uint64_t{1} << 37,    // /completion
  kInInfill = uint64_t{1} << 38,             // /infill
  kInJsonSchema = uint64_t{1} << 56,         // response_format.json_schema
  kInStructuredOutputs = uint64_t{1} << 57,  // structured_outputs
  kInLoadAdapter = uint64_t{1} << 60,        // /v1/load_lora_adapter
  kInUnloadAdapter = uint64_t{1} << 61,      // /v1/unload_lora_adapter
};

struct FieldRow {
  std::string_view name;
  FieldUse use;
  uint64_t places;           // FieldPlace bits
  std::string_view neutral;  // kRefused: the values that ask for nothing, as a JSON list; and null
  std::string_view note;     // kServed: what is taken; kRefused: what to do instead
};

std::span<const FieldRow> field_rows();
// Of them, those of vectors and scores (api_fields_vectors.cpp).
std::span<const FieldRow> vector_field_rows();
// Of these, those of the dialects in api_fields_dialects.cpp.
std::span<const FieldRow> dialect_field_rows();

// What an answer did not use, for its header. Bounded: whatever a body holds, the header is short.
class IgnoredFields {
 public:
  void add(std::string_view path, std::string_view meant = {});
  bool is_full() const;  // further names are only counted
  void count() { ++num_more_; }
  // "temprature (temperature?), x.y"; empty: nothing was ignored. Bytes that no header may hold are
  // percent-encoded.
  std::string text() const;

 private:
  std::vector<std::string> shown_;
  size_t num_more_ = 0;
};

// Adds the header that names them, where there are any.
void name_ignored(const IgnoredFields& ignored, HttpHeaders& headers);

// Checks the members of one object of a body. kUnsupported with `param` for a field that is not
// served; unknown ones go to `ignored`. `path` is the object's: "stream_options."; `reader` is the
// source of the template that is given the object: what it mentions is not ignored.
Status check_fields(const boost::json::object& object, FieldPlace place, std::string_view path,
                    IgnoredFields& ignored, std::string_view reader = {});

}  // namespace headrace
