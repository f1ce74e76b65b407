// TextBundle: everything of a checkpoint that concerns text: tokenizer, chat template, special
// tokens, end-of-generation ids, recommended sampling. Used by the server and the command line.
//
// Immutable after load; const calls are thread-safe. Owns what it holds, except that a tokenizer
// made from a GGUF vocabulary may view the checkpoint's mapping: keep the checkpoint alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/request.h"
#include "server/api/infill.h"
#include "server/api/parts/output_format.h"
#include "server/api/pooling_config.h"
#include "server/api/token_finder.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace headrace {

// What generation_config.json (or GGUF general.sampling.*) recommends; absent: the file is silent.
struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};

// How a request samples that says nothing of it, the same for API, command line and page: what the
// checkpoint recommends, else temperature 0.7 and top_p 0.95, and nothing else.
SamplingParams default_sampling(const SamplingDefaults& recommended);

// What the spelling of a special token in a request's strings is: the token, as the reference
// implementations have it, or plain text, so that content cannot forge turns.
enum class ContentTokens : unsigned char { kSpecial, kPlain };

struct TextBundle {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null: a base model, completions only
  std::unique_ptr<ChatTemplate> tool_template;  // for conversations with tools; null: as the others
  std::string bos_token, eos_token, pad_token;  // as text; empty: none
  std::vector<int32_t> end_ids;  // end-of-generation ids, ascending: pass them to Engine::create
  std::optional<InfillMarks> infill;  // nothing: the model was not trained for it
  SamplingDefaults sampling;
  PoolingConfig pooling;
  // In whose ids clients send inputs of embeddings; null: in the model's own.
  std::unique_ptr<Tokenizer> input_tokenizer;
  std::unique_ptr<GrammarCompiler> grammars;  // of this tokenizer and these end ids
  std::unique_ptr<TokenFinder> token_finder = std::make_unique<TokenFinder>();  // never null
  ContentTokens content_tokens = ContentTokens::kSpecial;
  OutputFormats formats;        // of what the model writes around reasoning and calls
  bool calls_are_text = false;  // no calls are looked for
  // The tokenizer for answers that are taken apart: shows the marks. Null: all are shown anyway.
  std::unique_ptr<Tokenizer> marked_tokenizer;
  std::string display_name;  // "SmolLM2-135M-Instruct", from metadata or the file's name

  // Errors of tokenizer and template files name the file and the reason. A template that does not
  // parse is an error; a checkpoint without any template is not.
  // content_tokens: of what chat_template renders and encode_chat encodes. With kPlain the rendered
  // text has marks (kContentMark); visible() is without them.
  static Result<TextBundle> load(const Checkpoint& checkpoint,
                                 ContentTokens content_tokens = ContentTokens::kSpecial);
  static std::string visible(std::string rendered);
  // The tokens that content may not become, as ChatTemplate::create takes them: those of the
  // vocabulary that are special, and others that the template writes.
  static std::string content_words(const Tokenizer& tokenizer, std::string_view source);
  // By name; "auto": as the template and the vocabulary say; "none": there are none.
  Status use_formats(std::string_view tool_format, std::string_view reasoning_format);
  // Null: a base model.
  const ChatTemplate* template_for(bool with_tools) const {
    return with_tools && tool_template != nullptr ? tool_template.get() : chat_template.get();
  }
  // A prompt that ends within reasoning that its template has opened.
  bool opens_reasoning(std::span<const int32_t> prompt_ids) const;
  const Tokenizer& answer_tokenizer() const {
    return marked_tokenizer != nullptr ? *marked_tokenizer : *tokenizer;
  }

  // Prompt text to ids with exactly one BOS: a text that begins with the BOS string does not get
  // another. add_special false: the text alone. Limits and errors are those of Tokenizer::encode.
  Result<std::vector<int32_t>> encode_prompt(std::string_view text, bool add_special,
                                             const EncodeLimits& limits = {}) const;
  // Rendered chat template to ids: as encode_prompt, but never an EOS at the end.
  Result<std::vector<int32_t>> encode_chat(std::string_view rendered,
                                           const EncodeLimits& limits = {}) const;
};

}  // namespace headrace
