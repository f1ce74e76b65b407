// Tokenizer: text <-> token ids, from a tokenizer.json or from the vocabulary of a GGUF file.
//
// Thread-safe after construction. Encoding a megabyte is linear; call it off the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

// What a GGUF file says of its tokenizer, copied out of the metadata. Views must live through the
// call of from_gguf only. An absent key leaves its field empty; an id out of range counts as
// absent.
struct GgufVocabulary {
  std::string model;         // tokenizer.ggml.model: "llama" (SentencePiece BPE by scores), "gpt2"
                             // (byte-level BPE) or "gemma4" (BPE by merges on text)
  std::string pre;           // tokenizer.ggml.pre: name of the pre-tokenizer, gpt2 only
  std::string architecture;  // general.architecture, for messages
  std::vector<std::string_view> tokens;  // tokenizer.ggml.tokens
  // tokenizer.ggml.token_type: 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte
  std::vector<int32_t> token_types;
  std::vector<float> scores;             // tokenizer.ggml.scores (f32, or i32 converted)
  std::vector<std::string_view> merges;  // tokenizer.ggml.merges
  // tokenizer.ggml.{bos,eos,eot,eom,unknown,padding}_token_id
  std::optional<int32_t> bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
  // tokenizer.ggml.{add_bos_token,add_eos_token,add_space_prefix}
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::optional<std::string_view> huggingface_json;  // tokenizer.huggingface.json: then it rules
};

// How the bytes of tokens become text (Tokenizer::decode, StreamDecoder).
struct DecodeScheme {
  // What is no character: one U+FFFD for each byte, else one for each broken sequence.
  bool mark_each_byte = false;
  bool first_differs = false;       // the first token of a text has bytes of its own
  uint32_t strip_start_blanks = 0;  // blanks taken off the start of the text
};

// Bounds of one encoding. Work, time and memory beyond input and output are bounded by one slice
// of the text, however long it is.
struct EncodeLimits {
  int64_t max_tokens = INT64_MAX;  // a text of more is refused as soon as that is sure
  // Asked between slices, on the calling thread; true ends the call with kUnavailable. May be
  // empty.
  std::function<bool()> stopped = {};
  size_t slice_bytes = 0;  // of one slice; 0: the usual size. Tests vary it
  // A character that is no part of the text: where it interrupts the spelling of a special token,
  // that is plain text. 0: none. Only without add_special.
  char32_t hidden = 0;
};

enum class TokenCount : uint8_t { kAtLeast, kExact };
// The error of a text that exceeds EncodeLimits::max_tokens, where counting ended, or of a prompt
// that was counted whole.
Error too_many_tokens(int64_t num_found, int64_t max_tokens,
                      TokenCount count = TokenCount::kAtLeast);

class Tokenizer {
 public:
  // tokenizer_config_json: the file beside tokenizer.json, for bos_token and eos_token; may be
  // empty.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view tokenizer_json,
                                                      std::string_view tokenizer_config_json = {});
  // kUnsupported with the name of a pre-tokenizer or model that is not known: never a guess.
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const GgufVocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // Special tokens written in the text are recognised, as the reference tokenizers do.
  // add_special: add BOS / EOS as the tokenizer's own post-processor says.
  // kInvalidArgument with the offset if the text is not valid UTF-8, or with the number of tokens
  // found (at least) and allowed if there are more than limits.max_tokens; kUnavailable when
  // stopped; kExhausted when memory is short.
  virtual Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special,
                                              const EncodeLimits& limits) const = 0;
  Result<std::vector<int32_t>> encode(std::string_view utf8, bool add_special) const {
    return encode(utf8, add_special, EncodeLimits());
  }
  // kInvalidArgument naming an id that is out of range. Ids in range that stand for nothing add
  // nothing.
  virtual Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  virtual int32_t vocab_size() const = 0;  // largest id + 1
  // Text of the entry as the vocabulary writes it ("Ġthe", "▁the"), nothing if there is no such id.
  virtual std::optional<std::string> id_to_token(int32_t id) const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // Bytes that this token contributes to decoded text when it stands inside a sequence; may be part
  // of a UTF-8 character. Special tokens: empty if skip_special, else their text.
  virtual std::string token_bytes(int32_t id, bool skip_special) const = 0;
  virtual bool is_special(int32_t id) const = 0;

  virtual std::optional<int32_t> bos_id() const = 0;
  virtual std::optional<int32_t> eos_id() const = 0;
  virtual bool adds_bos() const = 0;  // does encode(.., true) begin with BOS?

  virtual DecodeScheme decode_scheme() const { return {}; }
  // As token_bytes, for the first token of a text (see DecodeScheme::first_differs).
  virtual std::string first_token_bytes(int32_t id, bool skip_special) const {
    return token_bytes(id, skip_special);
  }
  // Does the id add anything to decoded text? No for skipped, missing and filler tokens.
  virtual bool decodes(int32_t id, bool skip_special) const {
    return !(skip_special && is_special(id)) && id_to_token(id).has_value();
  }
};

}  // namespace headrace
