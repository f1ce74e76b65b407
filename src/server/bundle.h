// TextBundle: everything of a checkpoint that concerns text: tokenizer, chat template, special
// tokens, end-of-generation ids, recommended sampling. Used by the server and the command line.
//
// Immutable after load; const calls are thread-safe. Owns what it holds, except that a tokenizer
// made from a GGUF vocabulary may view the checkpoint's mapping: keep the checkpoint alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

// What generation_config.json (or GGUF general.sampling.*) recommends; absent: the API's default.
struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};

struct TextBundle {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null: a base model, completions only
  std::string bos_token, eos_token, pad_token;  // as text; empty: none
  std::vector<int32_t> end_ids;  // end-of-generation ids, ascending: pass them to Engine::create
  SamplingDefaults sampling;
  std::string display_name;  // "SmolLM2-135M-Instruct", from metadata or the file's name

  // Errors of tokenizer and template files name the file and the reason. A template that does not
  // parse is an error; a checkpoint without any template is not.
  static Result<TextBundle> load(const Checkpoint& checkpoint);

  // Prompt text to ids with exactly one BOS: a text that begins with the BOS string does not get
  // another. add_special false: the text alone.
  Result<std::vector<int32_t>> encode_prompt(std::string_view text, bool add_special) const;
  // Rendered chat template to ids: as encode_prompt, but never an EOS at the end.
  Result<std::vector<int32_t>> encode_chat(std::string_view rendered) const;
};

}  // namespace headrace
